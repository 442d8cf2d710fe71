// SPDX-License-Identifier: MIT
// Layers whose kind is known at run time: their gradients, and parameters that others hold. The
// tool fmoe_golden compares the gradients of every kind with typed ones.
#include <algorithm>

#include <fmoe/dynamic.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/optimizers.hpp>

#include "support/catch.hpp"
#include "support/oracle.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 6, hidden = 8, experts = 40, outputs = 7, tokens = 300;

const auto x = random<tensor<float, 2>>({tokens, inputs}, 9),
           dy = random<tensor<float, 2>>({tokens, outputs}, 10);

mxd<> decoders() {
  mxd<> l;
  l.encoder = random<parameter<float, 2>>({inputs, hidden}, 1);
  l.gate = random<parameter<float, 2>>({inputs, experts}, 2);
  l.scales = random<parameter<float, 2>>({experts, outputs}, 3);
  l.decoder = random<parameter<float, 2>>({hidden, outputs}, 4);
  l.active = 3;
  return l;
}

cp_mumoe<1> normalised() {
  cp_mumoe<1> l;
  l.gate.projections = {random<parameter<float, 2>>({inputs, 5}, 1)};
  l.gate.means = {random<parameter<float, 1>>({5}, 2)};
  l.gate.variances = {tensor<float, 1>({5}, {1, 2, 0.5f, 3, 1})};
  l.experts = {{random<parameter<float, 2>>({5, 4}, 3)},
               random<parameter<float, 2>>({inputs, 4}, 4),
               random<parameter<float, 2>>({outputs, 4}, 5)};
  return l;
}

template <class T, std::size_t Rank>
dynamic::array array_of(const tensor<T, Rank>& t) {
  return {t.shared_storage()->data(), detail::dtype_of<T>, {t.shape().begin(), t.shape().end()}};
}

// The results of a step whose layer is known at run time.
struct results {
  tensor<float, 2> y{{tokens, outputs}}, dx{{tokens, inputs}};
  std::vector<dynamic::tensor> gradients;

  explicit results(const dynamic::compiled_gradients<>& step) {
    for (const auto& p : step.parameters()) {
      const std::size_t bytes = detail::element_count(p.value.shape) * sizeof(float);
      gradients.push_back({dtype::float32, p.value.shape, std::make_shared<storage>(bytes)});
    }
  }
  std::vector<dynamic::array> arrays() const {
    std::vector<dynamic::array> all{array_of(x), array_of(dy), array_of(y), array_of(dx)};
    for (const dynamic::tensor& g : gradients) all.push_back({g.elements->data(), g.type, g.shape});
    return all;
  }
  template <class Layer>
  bool are(layer_gradients<Layer, float> typed) const {
    const auto wanted = detail::trained_parameters(detail::released_parameters(typed.parameters));
    REQUIRE(wanted.size() == gradients.size());
    for (extent k = 0; k < wanted.size(); ++k) {
      const detail::any_tensor g = wanted[k].parameter.value();
      REQUIRE(g.shape == gradients[k].shape);
      if (std::memcmp(g.elements->data(), gradients[k].elements->data(), g.numbers().bytes()) != 0)
        return false;
    }
    return same_bits(y, typed.y) && same_bits(dx, typed.dx);
  }
};

TEST_CASE("a step of a layer known at run time has the bits of a typed one", "[dynamic]") {
  const auto typed = decoders();
  auto step = dynamic::compile_gradients(dynamic::layer(typed), tokens);
  CHECK(step.inputs() == inputs);
  CHECK(step.outputs() == outputs);
  REQUIRE(step.parameters().size() == 4);
  CHECK(step.parameters()[1].name == "gate");
  results r(step);
  step(r.arrays());
  CHECK(r.are(gradients(typed, x, dy)));

  auto sums = compile_gradients(typed, tokens);
  CHECK(step.span() == sums.span());
  tensor<float, 2> y({tokens, outputs}), dx({tokens, inputs});
  sums(x, dy, y, dx);
  sums(x, dy, y, dx, true);
  step(r.arrays(), true);
  CHECK(r.are(layer_gradients<mxd<>, float>{y, dx, sums.gradients()}));

  CHECK(step.explain().text == sums.explain().text);
  CHECK(step.cost().both.multiply_adds == sums.cost().both.multiply_adds);
  step.keep(2);
  sums.keep(2);
  step(r.arrays());
  sums(x, dy, y, dx);
  CHECK(r.are(layer_gradients<mxd<>, float>{y, dx, sums.gradients()}));
}

TEST_CASE("results of a layer known at run time have gradients together", "[dynamic]") {
  const auto typed = decoders();
  const dynamic::layer layer(typed);
  const auto in = dynamic::input(0);
  auto step = dynamic::compile_gradients(layer, {layer(in), layer.coefficients(in)}, {}, tokens);
  REQUIRE(step.results() == 2);
  const extent shown_experts = step.output_shape(1)[0];
  CHECK(shown_experts == typed.gate.shape()[1]);
  results r(step);
  const auto da = random<tensor<float, 2>>({tokens, shown_experts}, 9);
  const tensor<float, 2> a({tokens, shown_experts});
  auto arrays = r.arrays();
  arrays.insert(arrays.begin() + 3, array_of(a));
  arrays.insert(arrays.begin() + 2, array_of(da));
  step(arrays);
  const auto y = typed(x), shown = typed.coefficients(x);
  CHECK(same_bits(a, evaluate(shown)));
  const auto of_gate = evaluate(gradient(y, typed.gate, dy) + gradient(shown, typed.gate, da));
  const auto* const made = reinterpret_cast<const float*>(r.gradients[1].elements->data());
  double error = 0, greatest = 0;
  for (extent i = 0; i < of_gate.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(made[i] - of_gate.data()[i])));
    greatest = std::max(greatest, std::abs(static_cast<double>(of_gate.data()[i])));
  }
  CHECK(greatest > 0);
  CHECK(error <= 2e-6 * greatest);
  arrays.pop_back();
  CHECK_THROWS_WITH(step(arrays), containing("takes x, 2 dy, 2 y, dx"));
  CHECK_THROWS_AS(dynamic::compile_gradients(layer, std::vector<dynamic::expression>(), {}, tokens),
                  value_error);
}

TEST_CASE("a layer known at run time trains by a loss, and by its slope", "[dynamic]") {
  const auto typed = decoders();
  const dynamic::layer layer(typed);
  const auto in = dynamic::input(0), target = dynamic::input(1);
  const auto loss = [](const auto& y, const auto& t) { return losses::mse(y, t); };
  auto step = dynamic::compile_gradients(layer, {layer(in)},
                                         {dynamic::losses::mse(layer(in), target)}, tokens);
  auto same = compile_gradients(typed, tokens, loss);
  REQUIRE(step.has_loss());
  REQUIRE(step.given() == 1);
  const results made(step);
  step(made.arrays());  // dy is the target
  tensor<float, 2> y(dy.shape()), dx(x.shape());
  same(x, dy, y, dx);
  CHECK(made.are(layer_gradients<mxd<>, float>{y, dx, same.gradients()}));
  CHECK(step.loss() == same.loss());
  CHECK(step.loss() > 0);

  auto by_slope = dynamic::compile_gradients(layer, {layer(in)},
                                             {dynamic::subtract(layer(in), target)}, tokens);
  auto typed_slope =
      compile_gradients(typed, tokens, [](const auto& a, const auto& b) { return a - b; });
  CHECK(!by_slope.has_loss());
  by_slope(made.arrays());
  typed_slope(x, dy, y, dx);
  CHECK(made.are(layer_gradients<mxd<>, float>{y, dx, typed_slope.gradients()}));
}

TEST_CASE("a loss of the weights alone counts once, however many tokens there are", "[dynamic]") {
  const auto typed = decoders();
  const dynamic::layer layer(typed);
  const dynamic::expression w(typed.scales);
  auto step = dynamic::compile_gradients(layer, {layer(dynamic::input(0))},
                                         {dynamic::einsum("no,no->", {w, w})}, tokens);
  REQUIRE(step.given() == 0);
  const results made(step);
  auto arrays = made.arrays();
  arrays.erase(arrays.begin() + 1);  // there is no dy
  step(arrays);
  double squares = 0;
  for (extent i = 0; i < typed.scales.size(); ++i) {
    const auto number = static_cast<double>(typed.scales.data()[i]);
    squares += number * number;
  }
  CHECK(step.loss() == Approx(squares).epsilon(1e-6));
  for (extent k = 0; k < made.gradients.size(); ++k) {
    const auto* const g = reinterpret_cast<const float*>(made.gradients[k].elements->data());
    const bool is_it =
        step.parameters()[k].value.elements->same_elements(*typed.scales.shared_storage());
    for (extent i = 0; i < detail::element_count(made.gradients[k].shape); ++i)
      CHECK(g[i] == (is_it ? 2 * typed.scales.data()[i] : 0.F));
  }
}

TEST_CASE("what a selection keeps is a result of its layer", "[dynamic]") {
  const auto typed = decoders();
  const dynamic::layer layer(typed);
  const auto in = dynamic::expression(x);
  const auto value = [](const dynamic::expression& e) { return expr<float, 2>(e); };
  const auto weights = evaluate(value(layer.result("weights", in))),
             indices = evaluate(value(layer.result("indices", in)));
  const auto a = evaluate(typed.coefficients(x));
  CHECK(same_bits(evaluate(value(layer.result("scores", in))), evaluate(typed.scores(x))));
  REQUIRE(weights.shape() == std::array{tokens, typed.active});
  extent kept_entries = 0;
  for (extent t = 0; t < tokens; ++t)
    for (extent k = 0; k < typed.active; ++k)
      if (weights(t, k) != 0) {
        ++kept_entries;
        CHECK(weights(t, k) == a(t, static_cast<extent>(indices(t, k))));
      }
  CHECK(kept_entries ==
        tokens * typed.active - static_cast<extent>(std::ranges::count(
                                    std::span(weights.data(), weights.size()), 0.F)));
  CHECK(kept_entries > 0);
}

// Trains a layer twice, as its type and as a layer known at run time, by five clipped steps of a
// rule, and compares the bits of the weights.
template <class Layer, class Rule>
void check_training(Layer typed, const Rule& rule) {
  const dynamic::layer layer{typed};
  auto step = dynamic::compile_gradients(layer, tokens);
  auto typed_step = compile_gradients(typed, tokens);
  Rule optimizer = rule, typed_optimizer = rule;
  results r(step);
  std::vector<std::pair<std::string, dynamic::tensor>> gradients;
  for (extent k = 0; k < r.gradients.size(); ++k)
    gradients.emplace_back(step.parameters()[k].name, r.gradients[k]);
  tensor<float, 2> y({tokens, outputs}), dx({tokens, inputs});
  for (int t = 0; t < 5; ++t) {
    step(r.arrays());
    typed_step(x, dy, y, dx);
    REQUIRE(global_norm(gradients) > 1);
    CHECK(clip_norm(1.0, gradients) == clip_norm(1.0, typed_step.gradients()));
    CHECK(global_norm(gradients) == Approx(1));
    optimizer(layer, gradients);
    typed_optimizer(typed, typed_step.gradients());
    step.refresh();
    typed_step.refresh();
  }
  const auto trained = detail::trained_parameters(detail::released_parameters(typed));
  for (const auto& p : layer.parameters()) {
    const auto found = std::ranges::find_if(
        trained, [&](const detail::released_parameter& w) { return w.name.name == p.name; });
    CHECK(p.trained == (found != trained.end()));
    if (!p.trained) continue;
    const detail::any_tensor w = found->parameter.value();
    CHECK(std::memcmp(w.elements->data(), p.value.elements->data(), w.numbers().bytes()) == 0);
  }
  gradients.push_back({"W_other", {}});  // holds nothing
  CHECK(global_norm(gradients) == Approx(1));
  CHECK_THROWS_WITH(optimizer(layer, gradients),
                    "[optimizer] the layer trains no parameter W_other");
  gradients.resize(1);
  CHECK_THROWS_AS(optimizer(layer, gradients), value_error);
  CHECK(optimizer.steps() == 5);
}

TEST_CASE("optimizers train a layer known at run time to the bits of a typed one", "[dynamic]") {
  check_training(decoders(), adamw({.rate = 0.1}));
  check_training(decoders(), sgd({.rate = 0.1, .momentum = 0.9}));
  mxd<bf16> narrow;
  io::fill_part(io::released_layer(narrow), io::arrays_of(decoders(), "mxd", {}),
                {.narrow = io::narrow});
  narrow.active = 3;
  check_training(narrow, adam({.rate = 0.1}));
}

TEST_CASE("statistics of a layer known at run time are not trained", "[dynamic]") {
  const dynamic::layer layer{normalised()};
  std::vector<std::pair<std::string, dynamic::tensor>> gradients;
  for (const auto& p : layer.parameters())
    if (p.trained) gradients.emplace_back(p.name, p.value);
  REQUIRE(gradients.size() < layer.parameters().size());
  sgd({.rate = 1})(layer, gradients);  // w - w
  for (const auto& p : layer.parameters()) {
    const auto* const w = static_cast<const float*>(p.value.elements->data());
    CHECK(p.trained == (w[0] == 0));
    if (!p.trained) gradients.emplace_back(p.name, p.value);
  }
  CHECK_THROWS_AS(sgd()(layer, gradients), value_error);
}

TEST_CASE("weights of 8 bits have the gradients of the numbers that they stand for", "[dynamic]") {
  for (const dtype type : {dtype::q8, dtype::q8c}) {
    const dynamic::layer small = dynamic::layer(decoders()).quantize(type);
    std::vector<std::pair<std::string, dynamic::tensor>> numbers;
    for (const auto& p : small.parameters())
      numbers.emplace_back(p.name, detail::as_floats(p.value));
    const dynamic::layer wide = dynamic::layer(decoders()).with(numbers);
    auto step = dynamic::compile_gradients(small, tokens);
    auto wanted_step = dynamic::compile_gradients(wide, tokens);
    const results made(step), wanted(wanted_step);
    step(made.arrays());
    wanted_step(wanted.arrays());
    CHECK(same_bits(made.y, wanted.y));
    CHECK(same_bits(made.dx, wanted.dx));
    REQUIRE(made.gradients.size() == 4);
    for (extent k = 0; k < 4; ++k) {
      const std::size_t bytes = made.gradients[k].numbers().bytes();
      CHECK(wanted.gradients[k].numbers().bytes() == bytes);
      CHECK(std::memcmp(made.gradients[k].elements->data(), wanted.gradients[k].elements->data(),
                        bytes) == 0);
    }
  }
}

TEST_CASE("a parameter that a layer does not read has a gradient of 0", "[dynamic]") {
  auto typed = decoders();
  typed.linear_bias = random<parameter<float, 1>>({hidden}, 5);  // of a GLU, which this is not
  auto step = dynamic::compile_gradients(dynamic::layer(typed), tokens);
  results r(step);
  for (const dynamic::tensor& g : r.gradients)
    std::fill_n(static_cast<float*>(g.elements->data()), detail::element_count(g.shape), 7.0f);
  REQUIRE(step.parameters()[1].name == "W_glu.bias");
  step(r.arrays());
  CHECK(r.are(gradients(typed, x, dy)));
  CHECK(static_cast<const float*>(r.gradients[1].elements->data())[0] == 0);
}

TEST_CASE("a step that refuses an array writes nothing", "[dynamic]") {
  auto step = dynamic::compile_gradients(dynamic::layer(decoders()), tokens);
  const results r(step);
  auto arrays = r.arrays();
  arrays[5].shape = {experts, inputs};
  CHECK_THROWS_AS(step(arrays), shape_error);
  for (const float v : r.y) REQUIRE(v == 0);
}

TEST_CASE("parameters say how files have them", "[dynamic]") {
  const auto listed = dynamic::layer(decoders()).parameters();
  REQUIRE(listed.size() == 4);
  CHECK(listed[1].name == "gate");
  CHECK(listed[1].value.shape == std::vector<extent>{inputs, experts});
  CHECK(listed[1].file_shape == std::vector<extent>{experts, inputs});
  CHECK(listed[1].file_axes == std::vector<extent>{1, 0});
  CHECK(listed[1].trained);
  aoe<> mixture;
  mixture.down = random<parameter<float, 3>>({inputs, 5, 3}, 1);
  mixture.up = random<parameter<float, 3>>({5, 3, 4}, 2);
  mixture.linear = random<parameter<float, 3>>({5, inputs, 4}, 3);
  mixture.output = random<parameter<float, 3>>({5, 4, inputs}, 4);
  for (const auto& p : dynamic::layer(mixture).parameters()) {
    if (p.name == "wg") CHECK(p.file_shape == std::vector<extent>{inputs, 15});
    if (p.name != "experts.mlp.wup") continue;
    CHECK(p.value.shape == std::vector<extent>{5, 3, 4});
    CHECK(p.file_shape == std::vector<extent>{20, 3});
    CHECK(p.file_axes == std::vector<extent>{0, 2, 1});
  }
  CHECK_FALSE(dynamic::layer(normalised()).parameters()[1].trained);
}

TEST_CASE("a layer reads parameters where others hold them", "[dynamic]") {
  auto typed = decoders();
  std::vector<float> held(typed.decoder.begin(), typed.decoder.end());
  const dynamic::tensor there{dtype::float32,
                              {hidden, outputs},
                              std::make_shared<storage>(held.data(), held.size() * sizeof(float))};
  const dynamic::layer any = dynamic::layer(typed).with({{"W_dec", there}});
  auto forward = dynamic::compile({any(dynamic::input(0))}, tokens);
  auto step = dynamic::compile_gradients(any, tokens);
  for (extent i = 0; i < held.size(); ++i) held[i] = typed.decoder.data()[i] = 1.5f * held[i];
  any.parameters()[3].value.elements->written();
  results r(step);
  CHECK_THROWS_AS(step(r.arrays()), value_error);
  forward.refresh();
  step.refresh();
  step(r.arrays());
  CHECK(r.are(gradients(typed, x, dy)));
  tensor<float, 2> y({tokens, outputs});
  forward(std::array{array_of(x), array_of(y)});
  CHECK(same_bits(y, r.y));
}

TEST_CASE("a layer known at run time is trained with the statistics of a call", "[dynamic]") {
  auto typed = normalised();
  const dynamic::layer any{typed}, training = any.in_training(true);
  typed.gate.training = true;
  auto step = dynamic::compile_gradients(training, tokens);
  results r(step);
  step(r.arrays());
  CHECK(r.are(gradients(typed, x, dy)));
  CHECK(step.parameters().size() == 4);

  dynamic::layer(any).update_statistics(x);
  update_statistics(typed.gate, x);
  for (const dynamic::layer& l : {any, training, training.in_training(false)}) {
    const dynamic::layer_parameter mean = l.parameters()[1];
    CHECK(mean.name == "bn.0.running_mean");
    CHECK(std::equal(typed.gate.means[0].begin(), typed.gate.means[0].end(),
                     static_cast<const float*>(mean.value.elements->data())));
  }
}

}  // namespace
