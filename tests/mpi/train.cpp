// SPDX-License-Identifier: MIT
// Trains the layer of examples/training_over_ranks.hpp on the ranks of an MPI job, and compares it
// with one process: its bits where tokens are shared out, its loss where experts are as well.
// mpirun -n 4 train.
#include <fmoe/mpi.hpp>

#include "../../examples/training_over_ranks.hpp"

int main(int argc, char** argv) {
  return fmoe::run_on_mpi(argc, argv, [&](fmoe::communicator& ranks) {
    const auto rows = training::read_rows();
    const auto together = training::train_over_ranks(ranks, rows, 5),
               by_experts = training::train_experts_over_ranks(ranks, rows, 5);
    fmoe::run_on_threads(1, [&](fmoe::communicator& one) {
      const auto alone = training::train_over_ranks(one, rows, 5);
      if (alone.losses != together.losses ||
          !training::have_the_same_bits(alone.layer, together.layer))
        throw std::runtime_error("the bits of one process differ");
      if (training::greatest_difference(by_experts.losses, alone.losses) > 1e-4)
        throw std::runtime_error("the loss of one process differs");
    });
    MPI_Barrier(MPI_COMM_WORLD);  // then no rank has thrown
    if (ranks.rank() == 0) std::printf("%zu ranks passed\n", ranks.size());
  });
}
