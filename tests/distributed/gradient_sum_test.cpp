// SPDX-License-Identifier: MIT
#include <fmoe/distributed/gradient_sum.hpp>
#include <fmoe/gradients.hpp>

#include "../support/catch.hpp"
#include "../support/shard_checks.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr std::size_t tokens = 6, parts = 8;  // tokens of a part

tensor<float, 2> part_of_rows(const tensor<float, 2>& all, std::size_t part) {
  tensor<float, 2> own({tokens, 12});
  std::copy_n(all.data() + part * own.size(), own.size(), own.data());
  return own;
}

// The gradients of a batch of 8 parts, on this many ranks.
mxd<> gradients_on(communicator& ranks) {
  const auto layer = mixture_of_decoders(1000);
  const auto x = rows(tokens * parts, 12, 1000), dy = rows(tokens * parts, 12, 17);
  auto step = compile_gradients(layer, tokens, {.threads = 1});
  gradient_sum<float> batch(ranks);
  tensor<float, 2> y({tokens, 12}), dx({tokens, 12});
  for (int again = 0; again < 2; ++again) {  // a second batch begins anew
    const std::size_t own = parts / ranks.size();
    for (std::size_t k = 0; k < own; ++k) {
      const std::size_t part = ranks.rank() * own + k;
      step(part_of_rows(x, part), part_of_rows(dy, part), y, dx);
      batch.add(step.gradients());
    }
    batch.finish(step.gradients());
  }
  return step.gradients();
}

TEST_CASE("the gradients of a batch have the same bits on 1, 2, 4 and 8 ranks") {
  const auto layer = mixture_of_decoders(1000);
  const auto at_once =
      gradients(layer, rows(tokens * parts, 12, 1000), rows(tokens * parts, 12, 17));
  mxd<> first;
  for (const std::size_t P : {1u, 2u, 4u, 8u})
    run_on_threads(P, [&](communicator& ranks) {
      mxd<> made = gradients_on(ranks);
      if (ranks.rank() != 0) return;
      if (P == 1) first = made;
      mxd<> expected = at_once.parameters;
      const auto all = detail::released_parameters(made), same = detail::released_parameters(first),
                 whole = detail::released_parameters(expected);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto p = all[i].parameter.value(), q = same[i].parameter.value(),
                   w = whole[i].parameter.value();
        if (p.empty()) continue;
        const auto *a = static_cast<const float*>(p.elements->data()),
                   *b = static_cast<const float*>(q.elements->data()),
                   *c = static_cast<const float*>(w.elements->data());
        double worst = 0, greatest = 0;
        for (std::size_t k = 0; k < detail::element_count(p.shape); ++k) {
          require(a[k] == b[k], "the bits of " + all[i].name.name + " on " + std::to_string(P));
          worst = std::max(worst, std::abs(double{a[k]} - double{c[k]}));
          greatest = std::max(greatest, std::abs(double{c[k]}));
        }
        require(greatest > 0 && worst <= 4e-6 * greatest, all[i].name.name + " of one call");
      }
    });
}

TEST_CASE("a rank may have any number of parts") {
  run_on_threads(2, [](communicator& ranks) {
    gradient_sum<float> batch(ranks);
    const mxd<> part = mixture_of_decoders(1000);
    for (std::size_t k = 0; k < (ranks.rank() == 0 ? 3u : 1u); ++k) batch.add(part);
    mxd<> sum = mixture_of_decoders(1000);
    batch.finish(sum);
    const float *const one = part.gate.data(), *const all = std::as_const(sum).gate.data();
    for (std::size_t i = 0; i < part.gate.size(); ++i)
      require(all[i] == ((one[i] + one[i]) + one[i]) + one[i], "the sum of four parts");
  });
}

TEST_CASE("gradients that cannot be summed over ranks are refused on all of them") {
  run_on_threads(2, [](communicator& ranks) {
    gradient_sum<float> batch(ranks);
    mxd<> none = mixture_of_decoders(1000);
    if (ranks.rank() == 0) batch.add(none);
    require(sentence_of([&] { batch.finish(none); }) ==
                "rank 1 failed: [gradient_sum] a rank has no part of a batch",
            "a rank without a part");
  });
  run_on_threads(1, [](communicator& ranks) {
    mxd<double> wide;
    wide.gate = tensor<double, 2>({2, 3});
    gradient_sum<float> batch(ranks);
    CHECK_THROWS_WITH(batch.add(wide), "[gradient_sum] gate is float64, not float32");
    mxd<> layer = mixture_of_decoders(1000);
    fill_with(layer.scales, {37, 32}, 6, 1000);  // its rows are long enough to be sparse
    fill_with(layer.decoder, {20, 32}, 7, 1000);
    fill_with(layer.bias, {32}, 8, 1000);
    auto step = compile_gradients(layer, 8, {.threads = 1, .sparse_gradients = all});
    require(!step.gradients().sparse.empty(), "a sparse gradient");
    CHECK_THROWS_WITH(batch.add(step.gradients()),
                      "[gradient_sum] sparse gradients are not summed over ranks: compile them "
                      "with sparse_gradients = 0");
  });
}

}  // namespace
