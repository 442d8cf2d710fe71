// SPDX-License-Identifier: MIT
// Trains an MxD on 1, 2 and 4 ranks, which share out the tokens of each batch, and then the experts
// as well. docs/distributed.md says how.
#include "training_over_ranks.hpp"

int main() {
  const auto rows = training::read_rows();
  training::trained first;
  for (const std::size_t count : {1u, 2u, 4u})
    fmoe::run_on_threads(count, [&](fmoe::communicator& ranks) {
      const auto made = training::train_over_ranks(ranks, rows, 20);
      if (ranks.rank() != 0) return;
      if (count == 1) {
        first = made;
        std::printf("%s\n", made.losses.back() < 0.9 * made.losses.front()
                                ? "the loss falls"
                                : "the loss does not fall");
        return;
      }
      const bool is_same =
          made.losses == first.losses && training::have_the_same_bits(made.layer, first.layer);
      std::printf("%zu ranks: %s\n", count, is_same ? "the same bits" : "other bits");
    });
  for (const std::size_t count : {2u, 4u})
    fmoe::run_on_threads(count, [&](fmoe::communicator& ranks) {
      const auto made = training::train_experts_over_ranks(ranks, rows, 5);
      if (ranks.rank() != 0) return;
      const double error = training::greatest_difference(made.losses, first.losses);
      std::printf("%zu experts on each of %zu ranks: %s\n", made.layer.gate.shape()[1], count,
                  error < 1e-4 ? "the same loss" : "another loss");
      std::fprintf(stderr, "losses differ by %.1e of them\n", error);
    });
  std::fprintf(stderr, "loss %.4f, then %.4f\n", first.losses.front(), first.losses.back());
}
