// SPDX-License-Identifier: MIT
// Steps that take a loss in place of its slope.
#include <fmoe/gradients.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/moe.hpp>

#include "../support/allocations.hpp"
#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 12, experts = 9, outputs = 7, tokens = 300;  // of two spans

// A mixture of linear experts that shows its coefficients and its scores, both [t, n].
template <class T>
struct open_mixture {
  parameter<T, 2> router = random<parameter<T, 2>>({inputs, experts}, 1);
  parameter<T, 2> decoder = random<parameter<T, 2>>({experts, outputs}, 2);

  auto operator()(const operand_of<2> auto& x) const {
    const auto scores = einsum<"ti,in->tn">(x, router);
    const auto a = top_k(scores, 3, weighting::softmax);
    return std::tuple(einsum<"tn,no->to">(a, decoder), a, scores);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"router", presence::required, "in"}, layer.router);
    visit(released_name{"decoder", presence::required, "no"}, layer.decoder);
  }
};

// All experts, and the output alone.
template <class T>
struct mixture : open_mixture<T> {
  auto operator()(const operand_of<2> auto& x) const {
    const auto a = softmax(einsum<"ti,in->tn">(x, this->router));
    return einsum<"tn,no->to">(a, this->decoder);
  }
};

template <class T>
struct rows {
  tensor<T, 2> x = random<tensor<T, 2>>({tokens, inputs}, 4),
               target = random<tensor<T, 2>>({tokens, outputs}, 5);
  tensor<T, 2> y{{tokens, outputs}}, a{{tokens, experts}}, s{{tokens, experts}},
      dx{{tokens, inputs}};
};

template <class A, class B>
bool close(const A& a, const B& b, double most) {
  double error = 0, greatest = 0;
  for (extent i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(a.data()[i] - b.data()[i])));
    greatest = std::max(greatest, std::abs(static_cast<double>(b.data()[i])));
  }
  return a.size() == b.size() && greatest > 0 && error <= most * greatest;
}

// One number, the mean of a loss of each token.
template <class T>
auto mean_of(const expression auto& loss) {
  return einsum<"t->">(loss) * (T{1} / static_cast<T>(tokens));
}

template <class T>
constexpr double most = sizeof(T) == 4 ? 5e-6 : 1e-13;

TEMPLATE_TEST_CASE("a loss of each token goes through both passes in spans", "[losses]", float,
                   double) {
  using T = TestType;
  const mixture<T> layer;
  rows<T> r;
  auto step = compile_gradients(
      layer, tokens, [](const auto& y, const auto& target) { return losses::mse(y, target); });
  CHECK(step.span() == 256);
  step(r.x, r.target, r.y, r.dx);

  const auto y = layer(r.x);
  const auto loss = mean_of<T>(losses::mse(y, r.target));
  CHECK(close(r.y, evaluate(y), most<T>));
  CHECK(step.loss() == Approx(static_cast<double>(*evaluate(loss).data())).epsilon(most<T>));
  CHECK(close(r.dx, evaluate(gradient(loss, r.x)), most<T>));
  CHECK(close(step.gradients().router, evaluate(gradient(loss, layer.router)), most<T>));
  CHECK(close(step.gradients().decoder, evaluate(gradient(loss, layer.decoder)), most<T>));

  const tensor<T, 2> once = step.gradients().router;
  step(r.x, r.target, r.y, r.dx, true);
  CHECK(close(step.gradients().router, evaluate(2.0 * once), most<T>));

  // Of fewer tokens the mean is theirs.
  tensor<T, 2> x({2, inputs}), target({2, outputs}), few({2, outputs}), dx({2, inputs});
  std::copy_n(r.x.data(), x.size(), x.data());
  std::copy_n(r.target.data(), target.size(), target.data());
  step(x, target, few, dx);
  double sum = 0;
  for (extent i = 0; i < few.size(); ++i) {
    const double e = static_cast<double>(few.data()[i] - target.data()[i]);
    sum += e * e;
  }
  CHECK(step.loss() == Approx(sum / (2 * outputs)).epsilon(1e-5));
}

TEMPLATE_TEST_CASE("a loss of all tokens takes them through together", "[losses]", float, double) {
  using T = TestType;
  const open_mixture<T> layer;
  rows<T> r;
  const auto sum_of_losses = [](const auto& results, const auto& target) {
    const auto& [y, a, s] = results;
    return losses::mse(y, target) + 0.5 * losses::load_balance(a, s) + 0.01 * losses::router_z(s);
  };
  auto step = compile_gradients(layer, tokens, sum_of_losses);
  CHECK(step.span() == tokens);
  step(r.x, r.target, std::tie(r.y, r.a, r.s), r.dx);

  const auto loss = mean_of<T>(sum_of_losses(layer(r.x), r.target));
  CHECK(step.loss() == Approx(static_cast<double>(*evaluate(loss).data())).epsilon(most<T>));
  CHECK(close(r.dx, evaluate(gradient(loss, r.x)), most<T>));
  CHECK(close(step.gradients().router, evaluate(gradient(loss, layer.router)), most<T>));
  CHECK(close(step.gradients().decoder, evaluate(gradient(loss, layer.decoder)), most<T>));

  auto number = compile_gradients(layer, tokens, [](const auto& results, const auto& target) {
    return losses::fvu(std::get<0>(results), target);
  });
  CHECK(number.span() == tokens);
  number(r.x, r.target, std::tie(r.y, r.a, r.s), r.dx);
  const auto fvu = losses::fvu(std::get<0>(layer(r.x)), r.target);
  CHECK(number.loss() == Approx(static_cast<double>(*evaluate(fvu).data())).epsilon(most<T>));
  CHECK(close(number.gradients().router, evaluate(gradient(fvu, layer.router)), most<T>));
}

TEST_CASE("a slope that depends on all tokens takes them through together", "[losses]") {
  const mixture<double> layer;
  rows<double> r;
  const auto slope = [](const auto& y, const auto& target) {
    return y - target * (1.0 / einsum<"to->">(target * target));
  };
  auto step = compile_gradients(layer, tokens, slope);
  CHECK(step.span() == tokens);
  step(r.x, r.target, r.y, r.dx);
  const auto dy = evaluate(slope(r.y, r.target));
  CHECK(close(step.gradients().decoder, evaluate(gradient(layer(r.x), layer.decoder, dy)), 1e-13));
}

TEST_CASE("a step with a loss allocates nothing", "[losses]") {
  const mixture<float> layer;
  rows<float> r;
  auto step = compile_gradients(
      layer, tokens, [](const auto& y, const auto& target) { return losses::mse(y, target); },
      {.threads = 1});
  step(r.x, r.target, r.y, r.dx);
  const long before = allocations;
  step(r.x, r.target, r.y, r.dx);
  CHECK(allocations == before);
}

}  // namespace
