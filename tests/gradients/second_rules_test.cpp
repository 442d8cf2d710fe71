// SPDX-License-Identifier: MIT
// Gradients of gradients, of the values of kept and of functions of the user's, against central
// differences.
#include "../support/random_graph.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using ir::node_id;

// The gradient of sum(y dy) with random dy.
node_id slope(random_graph& g, node_id y, node_id x) {
  return *differentiate(g, {y}, {g.tensor(g.shape(y))}, {x})[0];
}

TEST_CASE("second derivatives of activations are those of differences", "[gradients]") {
  using enum pointwise;
  for (const pointwise f : {gelu, gelu_tanh, silu, sigmoid, tanh, exp}) {
    INFO(name_of(f));
    random_graph g;
    const node_id x = g.tensor({5, 6}, 2);
    check_slopes(g, slope(g, g.map(f, 0, x), x));
  }
}

TEST_CASE("second derivatives of activations of great numbers are 0", "[gradients]") {
  const tensor<float, 1> x({6}, {-1e30f, -1e4f, -50, 50, 1e4f, 1e30f}),
      one({6}, {1, 1, 1, 1, 1, 1});
  const auto curvature = [&](const auto& y) {
    return evaluate(gradient(gradient(y, x, one), x, one));
  };
  for (const auto& made : {curvature(gelu(x)), curvature(gelu_tanh(x)), curvature(silu(x))})
    for (const float v : made) CHECK(std::abs(v) <= 1e-15f);
}

TEST_CASE("second derivatives of parts of rows are those of differences", "[gradients]") {
  random_graph g;
  const node_id x = g.tensor({5, 3}), w = g.parameter({4, 6});
  check_slopes(
      g, slope(g, g.einsum("ti,io->to", {g.make(ir::append_node{g.map(pointwise::tanh, 0, x)}), w}),
               x));
  const node_id parts = g.concat({x, g.tensor({5, 2}), g.multiply(x, x)}, 1);
  check_slopes(g, slope(g, g.multiply(parts, parts), x));
  const node_id lists = g.tensor({4, 2, 2, 5});
  using enum selection_rule::kind;
  for (const weighting how : {weighting::softmax, weighting::score}) {
    INFO("weighting " << static_cast<int>(how));
    const node_id pairs = g.select({product_top_k, 3, 0, how, 0, 3}, lists);
    check_slopes(g, slope(g, g.multiply(pairs, pairs), lists));
  }
}

TEST_CASE("the gradients of the values of kept are those of differences", "[gradients]") {
  using enum selection_rule::kind;
  using enum weighting;
  for (const weighting how : {score, softmax, softmax_of_all, relu}) {
    INFO("weighting " << static_cast<int>(how));
    random_graph g;
    const node_id x = g.tensor({4, 7});
    check_slopes(g, g.kept(kept_part::value, g.select({top_k, 3, 0, how}, x)));
    const node_id pairs = g.tensor({4, 2, 2, 5});
    if (how == softmax_of_all) continue;
    check_slopes(g, g.kept(kept_part::value, g.select({product_top_k, 3, 0, how, 0, 3}, pairs)));
  }
}

TEST_CASE("each kept value gives its cotangent to its entry", "[gradients]") {
  const tensor<float, 2> x({2, 4}, {3, 1, 4, 2, -1, -2, -3, -4}), dk({2, 2}, {10, 20, 30, 40});
  const auto dx = evaluate(gradient(kept(top_k(x, 2)).values, x, dk));
  CHECK(std::ranges::equal(dx, std::vector<float>{10, 0, 20, 0, 30, 40, 0, 0}));
}

TEST_CASE("gradients go through functions of the user's that come with their derivatives",
          "[gradients]") {
  const auto x = random<tensor<double, 2>>({5, 6}, 1), dy = random<tensor<double, 2>>({5, 6}, 2);
  const pointwise_function cubed(
      "cubed", [](auto v) { return v * v * v; }, [](auto v) { return 3 * v * v; });
  const auto by_spans = pointwise_function::of_spans(
      "cubed",
      [](auto numbers) {
        for (auto& v : numbers) v = v * v * v;
      },
      [](auto numbers) {
        for (auto& v : numbers) v = 3 * v * v;
      });
  const auto wanted = evaluate(gradient(x * x * x, x, dy));
  for (const auto& f : {cubed, by_spans}) {
    const auto made = evaluate(gradient(f(x), x, dy));
    for (extent i = 0; i < x.size(); ++i) CHECK(made.data()[i] == Approx(wanted.data()[i]));
  }
  CHECK_THROWS_WITH(evaluate(gradient(gradient(cubed(x), x, dy), x, dy)),
                    "[gradient] cubed' is a function of the user's, which has no derivative");
}

}  // namespace
