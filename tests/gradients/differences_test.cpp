// SPDX-License-Identifier: MIT
// Gradients of layers that no golden file has, against central differences.
#include <fmoe/gradients.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>

#include "../support/monet.hpp"
#include "../support/slopes.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 6, outputs = 5;

auto numbers(auto parameter, const auto& shape, unsigned seed) {
  return random<decltype(parameter)>(shape, seed, 0.5f);
}

template <class Layer>
void fill_gate(Layer& l, extent experts) {
  for (auto& p : l.gate.projections) p = numbers(p, std::array{inputs, experts}, 1);
}

// On the CPU, and on the reference backend.
void check(const auto& y) {
  ir::graph g;
  const ir::node_id root = as_expression(y).lower(g);
  for (const bool by_cpu : {true, false}) {
    const slope_error e =
        error_of_slopes(g, root, 5, 6, [&](const ir::graph& made, ir::node_id id) {
          return by_cpu ? computed<double>(made, id, {}) : by_reference(made, id);
        });
    CAPTURE(by_cpu, e.worst, e.compared, e.corners);
    CHECK(e.compared > 15);
    CHECK(e.worst <= 1e-7);
  }
}

const auto x = random<tensor<double, 2>>({7, inputs}, 2);

TEST_CASE("gradients of Tucker and dense experts are those of differences", "[gradients]") {
  tucker_mumoe<2, double> tucker;
  fill_gate(tucker, 4);
  tucker.gate.alpha = 1.25;
  tucker.experts.core = numbers(tucker.experts.core, std::array<extent, 4>{2, 3, 4, 3}, 3);
  tucker.experts.experts[0] = numbers(tucker.experts.experts[0], std::array<extent, 2>{4, 2}, 4);
  tucker.experts.experts[1] = numbers(tucker.experts.experts[1], std::array<extent, 2>{4, 3}, 5);
  tucker.experts.input = numbers(tucker.experts.input, std::array<extent, 2>{inputs + 1, 4}, 6);
  tucker.experts.output = numbers(tucker.experts.output, std::array<extent, 2>{outputs, 3}, 7);
  check(tucker(x));
  dense_mumoe<1, double> dense;
  fill_gate(dense, 4);
  dense.experts.weight =
      numbers(dense.experts.weight, std::array<extent, 3>{4, inputs, outputs}, 8);
  check(dense(x));
}

TEST_CASE("gradients of Monet without some experts are those of differences", "[gradients]") {
  const monet_sizes sizes;
  const auto in = random<tensor<double, 2>>({sizes.t, sizes.d}, 2);
  const auto g1 = random<tensor<double, 3>>({sizes.t, sizes.p, sizes.s}, 3),
             g2 = random<tensor<double, 3>>({sizes.t, sizes.p, sizes.s}, 4);
  auto horizontal = random_hd<double>(sizes, 5);
  horizontal.deleted = {{0, 3}, {4, 4}, {8, 0}};
  check(horizontal(in, g1, g2));
  auto vertical = random_vd<double>(sizes, 6);
  vertical.deleted = {{0, 3}, {4, 4}, {8, 0}};
  check(vertical(in, g1, g2));
}

}  // namespace
