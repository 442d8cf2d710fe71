// SPDX-License-Identifier: MIT
#include <fmoe/expr/concat.hpp>
#include <fmoe/expr/rows.hpp>

#include "../support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEMPLATE_TEST_CASE("concat along every axis", "[concat]", float, double) {
  const auto a = random<tensor<TestType, 3>>({4, 3, 5}, 1),
             b = random<tensor<TestType, 3>>({4, 3, 2}, 2),
             c = random<tensor<TestType, 3>>({4, 6, 5}, 3),
             d = random<tensor<TestType, 3>>({1, 3, 5}, 4);
  CHECK(equals(concat<2>(a, b)));
  CHECK(equals(concat<2>(b, a, b, a)));
  CHECK(equals(concat<1>(a, c)));
  CHECK(equals(concat<0>(a, d)));
  CHECK(equals(concat<0>(a)));
  CHECK(equals(concat<2>(a, tensor<TestType, 3>({4, 3, 0}), a)));
  CHECK_THROWS_AS(evaluate(concat<2>(a, c)), shape_error);
  const auto p = random<parameter<TestType, 2>>({3, 4}, 5);
  CHECK(equals(concat<1>(p, p)));
}

TEST_CASE("parts are expressions of any kind, and so is what follows", "[concat]") {
  const auto x = random<tensor<float, 2>>({9, 5}, 1);
  const auto w = random<parameter<float, 2>>({5, 7}, 2);
  const auto h = einsum<"ti,ih->th">(x, w);
  const auto both = concat<1>(relu(h), x, top_k(h, 2));
  CHECK(agrees(both));
  CHECK(agrees(gelu_tanh(both) + random<parameter<float, 1>>({19}, 3)));
  CHECK(agrees(einsum<"tc,co->to">(both, random<parameter<float, 2>>({19, 4}, 4))));
  CHECK(agrees(top_k(both, 5)));
  CHECK(agrees(both + einsum<"tc,cd->td">(both, random<parameter<float, 2>>({19, 19}, 5))));
  const auto cube = einsum<"ti,iab->tba">(x, random<parameter<float, 3>>({5, 3, 4}, 6));
  CHECK(
      agrees(concat<1>(cube, einsum<"ti,iab->tba">(x, random<parameter<float, 3>>({5, 3, 2}, 7)))));
  CHECK(agrees(concat<2>(cube, cube)));
}

TEST_CASE("a dense constant beside tokens makes the whole", "[concat]") {
  const auto x = random<tensor<float, 2>>({4, 5}, 1);
  const auto p = random<parameter<float, 2>>({4, 3}, 2);
  CHECK(equals(concat<1>(x, p)));
  CHECK(equals(concat<1>(p, x)));
  CHECK(equals(concat<0>(x, random<parameter<float, 2>>({2, 5}, 3))));
}

TEMPLATE_TEST_CASE("the appended 1 meets the weight's last slice", "[concat]", float, double) {
  const auto x = random<tensor<TestType, 2>>({9, 21}, 1);
  const auto w = random<parameter<TestType, 2>>({22, 6}, 2);
  CHECK(agrees(append_one(x)));
  CHECK(agrees(einsum<"ti,io->to">(append_one(x), w)));
  CHECK(agrees(einsum<"ti,io->to">(append_one(relu(einsum<"ti,io->to">(append_one(x), w))),
                                   random<parameter<TestType, 2>>({7, 5}, 3))));
  CHECK(
      agrees(einsum<"ti,pir->tpr">(append_one(x), random<parameter<TestType, 3>>({3, 22, 5}, 4))));
  CHECK(agrees(einsum<"tbi,bio->tbo">(append_one(random<tensor<TestType, 3>>({9, 3, 4}, 5)),
                                      random<parameter<TestType, 3>>({3, 5, 5}, 6))));
  CHECK(agrees(einsum<"tbi,bio->to">(append_one(random<tensor<TestType, 3>>({9, 3, 4}, 5)),
                                     random<parameter<TestType, 3>>({3, 5, 5}, 6))));
}

TEST_CASE("an argument's extent is what the other parts leave of an axis", "[concat]") {
  const auto w = random<parameter<float, 2>>({22, 6}, 2);
  const auto x = random<tensor<float, 2>>({9, 21}, 1);
  const auto layer = [&](const operand auto& in) { return einsum<"ti,io->to">(append_one(in), w); };
  const auto forward = compile(layer, 9);
  tensor<float, 2> y({9, 6});
  forward(x, y);
  CHECK(relative_error(y.data(), reference(layer(x))) < 1e-6);
  CHECK_THROWS_AS(evaluate(layer(random<tensor<float, 2>>({9, 20}, 1))), shape_error);
}

}  // namespace
