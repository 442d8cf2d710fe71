// SPDX-License-Identifier: MIT
// Gradients of layers that return several results: those of the sum over all of them.
#include <fmoe/gradients.hpp>
#include <fmoe/moe.hpp>

#include "../support/allocations.hpp"
#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 12, experts = 9, outputs = 7, tokens = 300;  // of two spans

// A mixture of linear experts that shows its coefficients [t, n] and its heads [t, h, n].
template <class T = float>
struct open_mixture {
  parameter<T, 2> router = random<parameter<T, 2>>({inputs, experts}, 1);
  parameter<T, 2> decoder = random<parameter<T, 2>>({experts, outputs}, 2);
  parameter<T, 3> heads = random<parameter<T, 3>>({inputs, 2, experts}, 3);

  auto operator()(const operand_of<2> auto& x) const {
    const auto a = softmax(einsum<"ti,in->tn">(x, router));
    return std::tuple(einsum<"tn,no->to">(top_k(a, 3), decoder), a,
                      softmax(einsum<"ti,ihn->thn">(x, heads)));
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"router", presence::required, "in"}, layer.router);
    visit(released_name{"decoder", presence::required, "no"}, layer.decoder);
    visit(released_name{"heads", presence::required, "ihn"}, layer.heads);
  }
};

template <class T>
struct rows {
  tensor<T, 2> x = random<tensor<T, 2>>({tokens, inputs}, 4),
               dy = random<tensor<T, 2>>({tokens, outputs}, 5),
               da = random<tensor<T, 2>>({tokens, experts}, 6);
  tensor<T, 3> dh = random<tensor<T, 3>>({tokens, 2, experts}, 7);
  tensor<T, 2> y{{tokens, outputs}}, a{{tokens, experts}}, dx{{tokens, inputs}};
  tensor<T, 3> h{{tokens, 2, experts}};
};

template <class A, class B>
bool close(const A& a, const B& b, double most) {
  double error = 0, greatest = 0;
  for (extent i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(static_cast<double>(a.data()[i] - b.data()[i])));
    greatest = std::max(greatest, std::abs(static_cast<double>(b.data()[i])));
  }
  return a.size() == b.size() && error <= most * greatest;
}

TEMPLATE_TEST_CASE("the gradients of several results are the sums of those of each", "[gradients]",
                   float, double) {
  using T = TestType;
  constexpr double most = sizeof(T) == 4 ? 2e-6 : 1e-14;
  const open_mixture<T> layer;
  rows<T> r;
  auto step = compile_gradients(layer, tokens);
  CHECK(step.outputs() == outputs);
  CHECK(step.outputs(1) == experts);
  step(r.x, std::tie(r.dy, r.da, r.dh), std::tie(r.y, r.a, r.h), r.dx);

  const auto [y, a, h] = layer(r.x);
  const auto value = [](const auto& e) { return evaluate(e); };
  CHECK(close(r.y, value(y), most));
  CHECK(close(r.a, value(a), most));
  CHECK(close(r.h, value(h), most));
  CHECK(close(step.gradients().router,
              value(gradient(y, layer.router, r.dy) + gradient(a, layer.router, r.da)), most));
  CHECK(close(step.gradients().decoder, value(gradient(y, layer.decoder, r.dy)), most));
  CHECK(close(step.gradients().heads, value(gradient(h, layer.heads, r.dh)), most));
  CHECK(close(r.dx, value(gradient(y, r.x, r.dy) + gradient(a, r.x, r.da) + gradient(h, r.x, r.dh)),
              most));
  CHECK(!close(r.dx, value(gradient(y, r.x, r.dy)), 0.01));

  const tensor<T, 2> once = step.gradients().router;
  step(r.x, std::tie(r.dy, r.da, r.dh), std::tie(r.y, r.a, r.h), r.dx, true);
  CHECK(close(step.gradients().router, value(2.0 * once), most));
}

TEST_CASE("a call with several results allocates nothing", "[gradients]") {
  const open_mixture<> layer;
  rows<float> r;
  auto step = compile_gradients(layer, tokens, {.threads = 1});
  const auto call = [&] { step(r.x, std::tie(r.dy, r.da, r.dh), std::tie(r.y, r.a, r.h), r.dx); };
  call();
  const long before = allocations;
  call();
  CHECK(allocations == before);
}

TEST_CASE("the slope of a loss of several results", "[gradients]") {
  const open_mixture<> layer;
  rows<float> r, given;
  const auto slope = [](const auto& results, const auto& target) {
    const auto& [y, a, h] = results;
    return std::tuple(y - target, 0.1 * a, 0.0 * h);
  };
  auto step = compile_gradients(layer, tokens, slope);
  const tensor<float, 2> target = random<tensor<float, 2>>({tokens, outputs}, 8);
  step(r.x, target, std::tie(r.y, r.a, r.h), r.dx);
  given.dy = evaluate(r.y - target);
  given.da = evaluate(0.1 * r.a);
  given.dh = evaluate(0.0 * r.h);
  auto same = compile_gradients(layer, tokens);
  same(given.x, std::tie(given.dy, given.da, given.dh), std::tie(given.y, given.a, given.h),
       given.dx);
  CHECK(close(r.dx, given.dx, 2e-6));
  CHECK(close(step.gradients().router, same.gradients().router, 2e-6));
}

TEST_CASE("what does not fit several results is refused", "[gradients]") {
  const open_mixture<> layer;
  rows<float> r;
  auto step = compile_gradients(layer, tokens);
  const tensor<float, 2> narrow({tokens, outputs - 1});
  CHECK_THROWS_WITH(step(r.x, std::tie(r.dy, narrow, r.dh), std::tie(r.y, r.a, r.h), r.dx),
                    containing("dy 1"));
  tensor<float, 2> few({tokens - 1, experts});
  CHECK_THROWS_WITH(step(r.x, std::tie(r.dy, r.da, r.dh), std::tie(r.y, few, r.h), r.dx),
                    containing("y 1"));
}

}  // namespace
