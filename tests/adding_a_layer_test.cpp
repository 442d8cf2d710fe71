// SPDX-License-Identifier: MIT
// This is the layer of docs/adding_a_layer.md, which quotes this file, and a check of the page's
// numbers.
#include <regex>

#include <fmoe/arrays/released.hpp>
#include <fmoe/arrays/sliced.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/evaluate.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/io/safetensors.hpp>

#include "support/agree.hpp"
#include "support/pages.hpp"

// A mixture of bilinear experts of one CP rank: expert n is sum over r of u_n[r] (x a_r) (x b_r)
// w_r, and y = sum over the K chosen n of g_n times expert n, g = softmax of their scores.
template <class T = float>
struct bilinear_mixture {
  fmoe::parameter<T, 2> gate;     // i n
  fmoe::parameter<T, 2> scales;   // n r, row n is u_n
  fmoe::parameter<T, 2> left;     // i r
  fmoe::parameter<T, 2> right;    // j r
  fmoe::parameter<T, 2> decoder;  // r o
  fmoe::parameter<T, 1> bias;     // o; may be empty
  std::size_t active = 2;         // experts per token, K

  // [t, i] -> [t, n]: g. K > N throws value_error.
  auto coefficients(const fmoe::operand_of<2> auto& x) const {
    return fmoe::top_k(fmoe::einsum<"ti,in->tn">(x, gate), active, fmoe::weighting::softmax);
  }

  // [t, i], [t, n] -> [t, o]: the output of x with these coefficients.
  auto mixed(const fmoe::operand_of<2> auto& x, const fmoe::operand_of<2> auto& g) const {
    const auto y = fmoe::einsum<"tn,nr,ti,ir,tj,jr,ro->to">(g, scales, x, left, x, right, decoder);
    return fmoe::add_bias(y, bias);
  }

  // [t, i] -> [t, o].
  auto operator()(const fmoe::operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }

  // Returns expert n, which is called with x.
  auto expert(std::size_t n) const {
    return [*this, u = fmoe::sliced<0>(scales, n)](const fmoe::operand_of<2> auto& x) {
      return fmoe::einsum<"r,ti,ir,tj,jr,ro->to">(u, x, left, x, right, decoder);
    };
  }

  static void released(auto& layer, auto&& visit) {
    using fmoe::presence, fmoe::released_name;
    visit(released_name{"router.weight", presence::required, "ni", "in"}, layer.gate);
    visit(released_name{"experts", presence::required, "nr"}, layer.scales);
    visit(released_name{"left.weight", presence::required, "ri", "ir"}, layer.left);
    visit(released_name{"right.weight", presence::required, "ri", "ir"}, layer.right);
    visit(released_name{"down.weight", presence::required, "or", "ro"}, layer.decoder);
    visit(released_name{"down.bias", presence::optional, "o"}, layer.bias);
  }
};

// A gate with a setting of its own: a = entmax of x G.
struct entmax_gate {
  fmoe::parameter<float, 2> gate;  // i n
  double alpha = 1.5;

  // [t, i] -> [t, n].
  auto operator()(const fmoe::operand_of<2> auto& x) const {
    return fmoe::entmax(fmoe::einsum<"ti,in->tn">(x, gate), alpha);
  }

  static void released(auto& layer, auto&& visit) {
    visit(fmoe::released_name{"gate", fmoe::presence::required, "in"}, layer.gate);
  }
  static void describe(auto& layer, auto& file) { file.number("alpha", layer.alpha); }
};

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T>
bilinear_mixture<T> layer_of(std::size_t i, std::size_t n, std::size_t r, std::size_t o) {
  bilinear_mixture<T> layer;
  layer.gate = random<parameter<T, 2>>({i, n}, 1);
  layer.scales = random<parameter<T, 2>>({n, r}, 2);
  layer.left = random<parameter<T, 2>>({i, r}, 3);
  layer.right = random<parameter<T, 2>>({i, r}, 4);
  layer.decoder = random<parameter<T, 2>>({r, o}, 5);
  layer.bias = random<parameter<T, 1>>({o}, 6);
  return layer;
}

TEMPLATE_TEST_CASE("a bilinear mixture agrees with the oracle", "[adding_a_layer]", float, double) {
  auto layer = layer_of<TestType>(5, 6, 9, 7);
  for (const std::size_t tokens : {std::size_t{0}, std::size_t{1}, std::size_t{50}})
    for (const std::size_t active : {std::size_t{0}, std::size_t{2}, std::size_t{6}}) {
      layer.active = active;
      CHECK(agrees(layer(random<tensor<TestType, 2>>({tokens, 5}, 7))));
    }
  layer.bias = {};
  CHECK(agrees(layer(random<tensor<TestType, 2>>({50, 5}, 7))));
}

TEST_CASE("a bilinear mixture of a file runs once, or compiled", "[adding_a_layer]") {
  const temporary_folder folder;
  const auto file = folder / "layer.safetensors";
  save(layer_of<float>(5, 6, 9, 7), file);
  const auto x = random<tensor<float, 2>>({50, 5}, 7);

  const auto layer = fmoe::load<bilinear_mixture<>>(file, {.active = 2});
  auto y = fmoe::evaluate(layer(x));              // once, or
  const auto forward = fmoe::compile(layer, 50);  // plan and pack now
  forward(x, y);                                  // and only compute here

  CHECK(relative_error(y.data(), reference(layer_of<float>(5, 6, 9, 7)(x))) < 4e-6);
  CHECK(io::safetensors::read(file).at("left.weight").shape() == std::vector<std::size_t>{9, 5});
}

TEST_CASE("a setting of a layer's own is saved and loaded", "[adding_a_layer]") {
  const temporary_folder folder;
  const auto file = folder / "gate.safetensors";
  save(entmax_gate{random<tensor<float, 2>>({5, 6}, 1), 1.7}, file);
  CHECK(io::safetensors::read(file).metadata().at("alpha") == "1.7");
  CHECK(load<entmax_gate>(file).alpha == 1.7);
  io::safetensors::write(file, {{"gate", tensor<float, 2>({5, 6})}});
  CHECK(load<entmax_gate>(file).alpha == 1.5);
  io::safetensors::write(file, {{"gate", tensor<float, 2>({5, 6})}}, {{"alpha", "steep"}});
  CHECK_THROWS_AS(load<entmax_gate>(file), io::error);
}

TEST_CASE("a bilinear mixture is edited like any other layer", "[adding_a_layer]") {
  const auto layer = layer_of<float>(5, 6, 9, 7);
  const auto x = random<tensor<float, 2>>({50, 5}, 7);

  const auto y = fmoe::evaluate(fmoe::steered(fmoe::ablated(layer, {0, 4}), 3, 0.5)(x));

  const auto g = evaluate(layer.coefficients(x));
  std::vector<double> expected(50 * 7);
  for (std::size_t n = 0; n < 6; ++n) {
    const auto one = reference(layer.expert(n)(x));
    for (std::size_t t = 0; t < 50; ++t)
      for (std::size_t o = 0; o < 7; ++o) {
        const double share = (n == 0 || n == 4 ? 0 : g(t, n)) + (n == 3 ? 0.5 : 0);
        expected[t * 7 + o] += share * one[t * 7 + o] + (n == 0 ? layer.bias(o) : 0);
      }
  }
  CHECK(relative_error(y.data(), expected) < 4e-6);
}

TEST_CASE("shapes that do not fit, and more experts than there are, are refused",
          "[adding_a_layer]") {
  auto layer = layer_of<float>(5, 6, 9, 7);
  CHECK_THROWS_AS(evaluate(layer(tensor<float, 2>({3, 6}))), shape_error);
  layer.active = 7;
  CHECK_THROWS_AS(evaluate(layer(tensor<float, 2>({3, 5}))), value_error);
}

// The tensors have no elements, because costs and plans read none.
bilinear_mixture<> hollow(std::size_t i, std::size_t n, std::size_t r, std::size_t o) {
  const auto w = [](std::size_t rows, std::size_t columns) {
    return tensor<float, 2>({rows, columns}, std::make_shared<storage>(std::size_t{0}));
  };
  return {w(i, n), w(n, r), w(i, r), w(i, r), w(r, o), parameter<float, 1>({o})};
}

TEST_CASE("a bilinear mixture costs its factors, and K rows of the experts'",
          "[adding_a_layer][cost]") {
  const double i = 768, n = 512, r = 2048, o = 768, k = 2;
  const tensor<float, 2> x({128, 768});
  const cost_report c = cost(hollow(768, 512, 2048, 768)(x));
  CHECK(c.factorized.multiply_adds == i * n + k * r + 2 * i * r + r * o);
  CHECK(c.factorized.parameters == i * n + n * r + 2 * i * r + r * o + o);
  CHECK(c.factorized.multiply_adds == 5115904);
  CHECK(c.factorized.parameters == 6161152);
  CHECK(c.naive_multiply_adds == n * i * i * o + i * n);  // 231,928,627,200
}

TEST_CASE("the page quotes this file", "[adding_a_layer]") {
  const auto here = lines_of(content("tests/adding_a_layer_test.cpp"));
  const auto quoted = blocks_of("docs/adding_a_layer.md", "cpp");
  CHECK(quoted.size() == 7);
  for (const auto& block : quoted) {
    INFO(block.front());
    CHECK(holds(here, block));
  }
}

// Leaves out what depends on the machine that the test runs on: its name, and the bytes of panels
// and of the threads of a call.
std::vector<std::string> without_machine(std::vector<std::string> lines) {
  static const std::regex machine("x86-64-v\\d|\\d+ packed, \\d+ a call");
  for (std::string& line : lines) line = std::regex_replace(line, machine, "");
  return lines;
}

TEST_CASE("the page prints what explain prints", "[adding_a_layer]") {
  const auto said = explain(hollow(768, 512, 2048, 768)(tensor<float, 2>({128, 768}))).text;
  INFO(said);
  const auto quoted = blocks_of("docs/adding_a_layer.md", "");
  REQUIRE(quoted.size() == 1);
  // In tiles that are the same on every machine.
  const auto planned =
      explain(hollow(768, 512, 2048, 768)(tensor<float, 2>({128, 768})), {.shape = plan_shape{}});
  CHECK(without_machine(quoted.front()) == without_machine(lines_of(without_times(planned.text))));
}

}  // namespace
