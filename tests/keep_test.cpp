// SPDX-License-Identifier: MIT
// K at run time: a layer that keeps fewer entries than it is compiled for has the bits of one that
// is compiled for so many.
#include <fmoe/explain.hpp>
#include <fmoe/gradients.hpp>

#include "support/allocations.hpp"
#include "support/keep.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("layers keep fewer entries than they are compiled for", "[keep]") {
  const std::string plan = explain(decoders(most)(kept_x)).text;
  INFO(plan);
  CHECK(plan.find("scores in 16 bits") != plan.npos);
  check(decoders, most, {1, 3, 15, 16});
  check(decoders, most, {1, 3, 15, 16}, {.screen = false});
  check(retrieved, most, {1, 5, 16});
  check(autonomous_of, 4, {1, 2, 4});
}

TEST_CASE("a step keeps fewer entries in both passes", "[keep][gradients]") {
  const auto dy = random<tensor<float, 2>>({tokens, 20}, 9);
  auto step = compile_gradients(decoders(most), tokens);
  tensor<float, 2> y({tokens, 20}), dx({tokens, inputs});
  for (const extent k : {extent{4}, extent{9}, most}) {
    step.keep(k);
    step(kept_x, dy, y, dx);
    const auto expected = gradients(decoders(k), kept_x, dy);
    CHECK(same_bits(y, expected.y));
    CHECK(same_bits(dx, expected.dx));
    CHECK(same_bits(step.gradients().gate, expected.parameters.gate));
    CHECK(same_bits(step.gradients().scales, expected.parameters.scales));
  }
  step.keep(2);
  CHECK(allocates_nothing([&] { step(kept_x, dy, y, dx); }));
}

TEST_CASE("a layer keeps no more entries than it has room for", "[keep]") {
  auto forward = compile(decoders(most), tokens);
  CHECK_THROWS_WITH(forward.keep(17), "[keep] 17 entries: the layer is compiled for 1 to 16");
  CHECK_THROWS_WITH(forward.keep(0), "[keep] 0 entries: the layer is compiled for 1 to 16");
  const auto w = random<tensor<float, 2>>({inputs, 8}, 1);
  auto dense = compile([&](const auto& in) { return einsum<"ti,io->to">(in, w); }, tokens);
  CHECK_THROWS_WITH(dense.keep(3), "[keep] the layer has no top_k that leaves out entries");
}

}  // namespace
