// SPDX-License-Identifier: MIT
// Every rule of reverse mode against central differences, on the CPU and on the reference backend.
#include <map>

#include <fmoe/evaluate.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/reference.hpp>

#include "../support/random_graph.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using ir::node_id;

void check(const ir::graph& g, node_id root) { check_slopes(g, root); }

TEST_CASE("the gradients of einsums are those of differences", "[gradients]") {
  for (const char* subscripts : {"ti,io->to", "ti,ti->t", "ti->t", "ti->i", "ti->it", "ti,jo->to",
                                 "ti,tj,ijo->to", "ti,oi->ot", "tii->ti", "tii->t", "ti,ti,ti->ti",
                                 "ti,ir,tr,or->to", "tir,r->", "ti,zi->ti"}) {
    INFO(subscripts);
    random_graph g;
    std::map<char, extent> length{{'t', 5}, {'i', 3}, {'j', 2}, {'o', 4}, {'r', 2}, {'z', 1}};
    std::vector<node_id> in;
    for (extent k = 0; k < operand_count(subscripts); ++k) {
      std::vector<extent> shape;
      for (const char c : operand_labels(subscripts, k)) shape.push_back(length[c]);
      in.push_back(has(operand_labels(subscripts, k), 't') ? g.tensor(shape) : g.parameter(shape));
    }
    check(g, g.einsum(subscripts, in));
  }
}

TEST_CASE("an operand that an einsum has twice gets both gradients", "[gradients]") {
  random_graph g;
  const node_id x = g.tensor({4, 3});
  check(g, g.einsum("ti,ti->t", {x, x}));
}

TEST_CASE("the gradients of functions of one number are those of differences", "[gradients]") {
  using enum pointwise;
  for (const auto f : {relu, gelu, gelu_tanh, silu, sigmoid, squared_relu, exp, negate, scale,
                       shift, threshold, tanh, abs, at_least, at_most, quotient}) {
    INFO(name_of(f));
    random_graph g;
    check(g, g.map(f, 0.75, g.tensor({5, 6})));
  }
  for (const auto f : {sqrt, inverse_sqrt, log, inverse, power}) {
    INFO(name_of(f));
    random_graph g;
    check(g, g.map(f, 0.75, g.positive({5, 6})));
  }
}

TEST_CASE("the gradients of functions of two numbers are those of differences", "[gradients]") {
  using enum pass_kind;
  for (const auto what : {add, divide, max, min, keep, drop, above})
    for (const std::vector<extent>& shape : {std::vector<extent>{5, 6}, {6}}) {
      INFO(name_of(what) << " of rank " << shape.size());
      random_graph g;
      const node_id left = g.tensor({5, 6});
      check(g, g.join(what, left, what == divide ? g.positive(shape) : g.tensor(shape)));
    }
  random_graph g;
  const node_id x = g.tensor({5, 6});
  check(g, g.where(g.tensor({5, 6}), x, g.map(pointwise::scale, 3, x)));
  check(g, g.multiply(x, g.tensor({6})));
}

TEST_CASE("the gradients of functions of rows are those of differences", "[gradients]") {
  using enum row_function;
  for (const auto& [fn, parameter] : {std::pair{softmax, 0.},
                                      {entmax, 1.5},
                                      {entmax, 2.},
                                      {entmax, 1.25},
                                      {entmax, 3.},
                                      {layer_norm, 1e-5},
                                      {layer_norm, 0.5},
                                      {rms_norm, 1e-6},
                                      {rms_norm, 0.5},
                                      {clamped_rms_norm, 1e-12},
                                      {clamped_rms_norm, 100.}}) {
    INFO(name_of(fn) << ' ' << parameter);
    random_graph g;
    check(g, g.map_rows(fn, parameter, g.tensor({4, 7})));
    check(g, g.map_rows(fn, parameter, g.tensor({3, 2, 5})));
  }
  random_graph g;
  check(g, g.map_rows(bounded_softmax, 0, g.tensor({4, 7}), g.tensor({4})));
  // Of what is -infinity a softmax is 0.
  check(g, g.map_rows(softmax, 0,
                      g.make(ir::row_function_node{
                          row_function::best_groups, 2, g.tensor({5, 12}), {}, {4}})));
  check(g, g.map_rows(softmax, 0, g.map_rows(group_max, 4, g.tensor({5, 12}))));
  for (const double jitter : {0.01, 0.2, 0.4, 0.9}) {
    INFO("sparse mixer " << jitter);
    check(g, g.map_rows(sparse_mixer, jitter, g.tensor({9, 7})));
    check(g, g.map_rows(sparse_mixer, jitter, g.tensor({3, 2, 5}, 1, -2)));
  }
  for (const auto which : {row_norm::l1, row_norm::l2, row_norm::max, row_norm::mean}) {
    INFO(name_of(which));
    check(g, g.norm(which, g.tensor({4, 7})));
    check(g, g.norm(which, g.tensor({2, 3, 5})));
  }
}

// The gradient of a sparse mixer from its two softmaxes, whose members are constant.
std::vector<double> slopes_of_mixer(std::span<const double> x, std::span<const double> c,
                                    double jitter) {
  std::vector<double> slopes(x.size());
  std::vector<extent> left(x.size());
  std::iota(left.begin(), left.end(), extent{0});
  for (int k = 0; k < 2; ++k) {
    const extent best = *std::ranges::max_element(left, {}, [&](extent i) { return x[i]; });
    double sum = 0;
    std::vector<extent> members;
    for (const extent i : left)
      if (x[best] == x[i] || (x[best] - x[i]) / std::max(std::abs(x[i]), x[best]) <= 2 * jitter) {
        members.push_back(i);
        sum += std::exp(x[i] - x[best]);
      }
    const double weight = 1 / sum;
    for (const extent i : members)
      slopes[i] += c[best] * weight * ((i == best) - std::exp(x[i] - x[best]) / sum);
    std::erase(left, best);
  }
  return slopes;
}

TEST_CASE("the gradient of a sparse mixer is that of two softmaxes", "[gradients]") {
  auto x = random<tensor<double, 2>>({12, 7}, 1);
  const auto dy = random<tensor<double, 2>>({12, 7}, 2);
  for (extent n = 0; n < 7; ++n) {
    x(0, n) = 2;                       // all are equal
    x(1, n) = -2 - std::abs(x(1, n));  // all are below 0
    x(2, n) = std::min(x(2, n), 0.0);  // the greatest is 0
    if (n > 2) x(3, n) = -std::numeric_limits<double>::infinity();
  }
  for (const double jitter : {0., 0.01, 0.2, 0.4, 0.9})
    for (const compile_options& options : {compile_options{}, compile_options{.on = reference()}}) {
      const auto dx = evaluate(gradient(sparse_mixer(x, jitter), x, dy), options);
      for (extent t = 0; t < 12; ++t) {
        const auto expected = slopes_of_mixer({&x(t, 0), 7}, {&dy(t, 0), 7}, jitter);
        for (extent n = 0; n < 7; ++n) {
          CAPTURE(jitter, t, n);
          CHECK(std::abs(dx(t, n) - expected[n]) < 1e-14);
        }
      }
    }
}

TEST_CASE("the gradients of selections are those of differences", "[gradients]") {
  using enum selection_rule::kind;
  using enum weighting;
  for (const auto w : {score, softmax, softmax_of_all, relu, normalized}) {
    INFO("weighting " << static_cast<int>(w));
    random_graph g;
    check(g, g.select({top_k, 3, 0, w}, g.positive({4, 7}), g.tensor({4, 7})));
    if (w == normalized) {
      check(g, g.select({top_k, 3, 0, w}, g.positive({4, 7})));
      check(g, g.select({top_p, 0, 0.6, w}, g.positive({4, 7})));
      continue;
    }
    check(g, g.select({top_k, 3, 0, w}, g.tensor({4, 7})));
    check(g, g.select({top_p, 0, 0.6, w}, g.tensor({4, 7})));
    if (w != relu) check(g, g.select({expert_choice, 2, 0, w}, g.tensor({6, 4}), g.tensor({6, 4})));
    if (w != softmax_of_all)
      check(g, g.select({product_top_k, 3, 0, w, 0, 3}, g.tensor({4, 2, 2, 5})));
  }
  random_graph g;
  const node_id s = g.tensor({4, 7});
  check(g, g.select({top_k, 3}, g.map(pointwise::relu, 0, s)));
  check(g, g.select({nonzero}, g.map(pointwise::relu, 0, s)));
}

TEST_CASE("the gradients of joined and masked operands are those of differences", "[gradients]") {
  random_graph g;
  const node_id x = g.tensor({5, 3}), w = g.parameter({4, 6});
  check(g, g.einsum("ti,io->to", {g.make(ir::append_node{x}), w}));
  check(g, g.concat({x, g.tensor({5, 2}), x}, 1));
  const node_id a = g.tensor({5, 4}), b = g.tensor({5, 3});
  const auto pairs =
      std::make_shared<std::vector<index_pair>>(std::vector<index_pair>{{0, 1}, {2, 2}, {3, 0}});
  const node_id mask = g.make(ir::mask_node{pairs, 4, 3});
  check(g, g.einsum("ti,tj,ij,jo->to", {a, b, mask, g.parameter({3, 2})}));
}

TEST_CASE("slices and the members of pairs are those of the oracle", "[gradients]") {
  random_graph g;
  const node_id x = g.tensor({5, 4, 9});
  for (const node_id id : {g.slice(x, 1, 1, 2), g.slice(x, 2, 3, 5), g.unpair(x, 3),
                           g.slice(g.einsum("tab->tba", {x}), 1, 2, 4)}) {
    CHECK(computed<double>(g, id, {}) == oracle(g)[id]);
    CHECK(by_reference(g, id) == oracle(g)[id]);
  }
}

TEST_CASE("a corner has PyTorch's derivative", "[gradients]") {
  const tensor<double, 1> x({4}, {0, 0.75, -1, 2}), one({4}, {1, 1, 1, 1});
  const auto of = [&](const auto& y) {
    const auto d = evaluate(gradient(y, x, one));
    return std::vector<double>(d.data(), d.data() + d.size());
  };
  using numbers = std::vector<double>;
  CHECK(of(relu(x)) == numbers{0, 1, 0, 1});
  CHECK(of(abs(x)) == numbers{0, 1, -1, 1});
  CHECK(of(apply(pointwise::at_least, x, 0.75)) == numbers{0, 1, 0, 1});
  CHECK(of(apply(pointwise::at_most, x, 0.75)) == numbers{1, 1, 1, 0});
  CHECK(of(max(x, tensor<double, 1>({4}, {0, 0, 0, 0}))) == numbers{0.5, 1, 0, 1});
}

TEST_CASE("weights of 16 and 8 bits have gradients of float", "[gradients]") {
  const auto x = random<tensor<float, 2>>({9, 64}, 1), dy = random<tensor<float, 2>>({9, 5}, 2);
  const auto check = [&](const auto& narrow, const auto& wide) {
    const auto of = [&](const auto& w) {
      const auto y = tanh(einsum<"ti,io->to">(x, w));
      return evaluate(std::tuple(gradient(y, x, dy), gradient(y, w, dy)));
    };
    const auto [dx, dw] = of(narrow);
    const auto [wide_dx, wide_dw] = of(wide);
    static_assert(std::is_same_v<decltype(dw), const tensor<float, 2>>);
    CHECK(same_bits(dx, wide_dx));
    CHECK(same_bits(dw, wide_dw));
  };
  const auto weights = random<parameter<float, 2>>({64, 5}, 3);
  parameter<bf16, 2> halved{tensor<bf16, 2>({64, 5})};
  parameter<float, 2> widened_halves{tensor<float, 2>({64, 5})};
  for (extent i = 0; i < weights.size(); ++i) {
    halved.data()[i] = convert<bf16>(weights.data()[i]);
    widened_halves.data()[i] = convert<float>(halved.data()[i]);
  }
  check(halved, widened_halves);
  const parameter<q8, 2> bytes = quantized<q8>(weights, 0);
  check(bytes, parameter<float, 2>(widened(bytes)));
}

TEST_CASE("a gradient is an expression, and has a gradient", "[gradients]") {
  const auto x = random<tensor<double, 2>>({3, 4}, 1);
  tensor<double, 2> one({3, 4});
  for (double& v : one) v = 1;
  const auto slope = gradient(x * x * x, x, one);
  const auto curvature = gradient(slope, x, one);
  const auto [first, second] = evaluate(std::tuple(slope, curvature));
  for (extent i = 0; i < x.size(); ++i) {
    CHECK(first.data()[i] == Approx(3 * x.data()[i] * x.data()[i]));
    CHECK(second.data()[i] == Approx(6 * x.data()[i]));
  }
}

TEST_CASE("what has no derivative is refused before anything runs", "[gradients]") {
  const tensor<float, 2> x({3, 4}), dy({3, 4});
  const pointwise_function mish("mish", [](auto v) { return v; });
  CHECK_THROWS_WITH(evaluate(gradient(mish(x), x, dy)),
                    "[gradient] mish is a function of the user's, which has no derivative");
  CHECK_THROWS_WITH(evaluate(gradient(relu(x), x, tensor<float, 2>({3, 5}))),
                    "[gradient] dy has not the shape of y");
}

}  // namespace
