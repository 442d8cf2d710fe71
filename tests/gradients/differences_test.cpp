// SPDX-License-Identifier: MIT
// Gradients of layers that no golden file has, against central differences.
#include <fmoe/gradients.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

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

TEST_CASE("gradients of a cross-layer transcoder are those of differences", "[gradients]") {
  cross_layer_transcoder<double> l;
  l.encoder = numbers(l.encoder, std::array<extent, 2>{inputs, 16}, 1);
  l.encoder_bias = numbers(l.encoder_bias, std::array<extent, 1>{16}, 2);
  l.decoder = numbers(l.decoder, std::array<extent, 3>{16, 3, outputs}, 3);
  check(l(x));
  l.bias = numbers(l.bias, std::array<extent, 1>{outputs}, 4);
  l.skip = numbers(l.skip, std::array<extent, 2>{inputs, outputs}, 5);
  l.active = 5;
  check(l(x));
  l.threshold = numbers(l.threshold, std::array<extent, 1>{16}, 6);
  l.active = all;
  check(l(x));
}

// A unit may become active between the two points of a difference, which counts as a corner.
TEST_CASE("gradients of dictionaries are those of differences", "[gradients]") {
  sparse_mlp<double> l;
  l.encoder = numbers(l.encoder, std::array<extent, 2>{inputs, 16}, 1);
  l.decoder = numbers(l.decoder, std::array<extent, 2>{16, inputs}, 2);
  l.encoder_bias = numbers(l.encoder_bias, std::array<extent, 1>{16}, 3);
  l.input_bias = numbers(l.input_bias, std::array<extent, 1>{inputs}, 4);
  l.active = all;
  for (const row_scaling scaling :
       {row_scaling::none, row_scaling::constant_norm, row_scaling::layer_norm}) {
    l.scaling = scaling;
    check(l(x));
  }
  l.threshold = numbers(l.threshold, std::array<extent, 1>{16}, 5);
  check(l(x));
  l.threshold = {};
  l.gate_bias = numbers(l.gate_bias, std::array<extent, 1>{16}, 6);
  l.magnitude_scale = numbers(l.magnitude_scale, std::array<extent, 1>{16}, 7);
  l.magnitude_bias = numbers(l.magnitude_bias, std::array<extent, 1>{16}, 8);
  check(l(x));
  l.gate_bias = {};
  l.active = 3;
  l.in_decoder_norms = true;
  check(l(x));
  l.of_absolute_values = true;
  check(l(x));
}

}  // namespace
