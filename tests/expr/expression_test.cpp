// SPDX-License-Identifier: MIT
#include <fmoe/expr/expression.hpp>

#include <fmoe/expr/all_except.hpp>
#include <fmoe/gradients/gradient.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mxd.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using number = leaf_expr<float, 2>;

template <class E>
using handed_on = decltype(as_expression(std::declval<E>()));

// An lvalue is not copied; a reference to a temporary would dangle.
template <class E>
constexpr bool hands_on =
    std::is_same_v<handed_on<E&>, const E&> && std::is_same_v<handed_on<const E&>, const E&> &&
    std::is_same_v<handed_on<E>, E> && std::is_same_v<handed_on<const E>, const E>;
static_assert(hands_on<number>);
static_assert(hands_on<expr<float, 2>>);
static_assert(std::is_same_v<handed_on<tensor<float, 2>&>, number>);
static_assert(std::is_same_v<handed_on<const parameter<float, 2>&>, number>);
static_assert(std::is_same_v<expression_t<const number&>, number>);

TEST_CASE("a reference to what as_expression makes of a temporary is good", "[expression]") {
  const tensor<float, 2> x({2, 3});
  const auto& kept = as_expression(choose(true, x, x));
  const auto& from_const = as_expression(std::as_const(kept));
  CHECK(&from_const == &kept);
  ir::graph g;
  CHECK(kept.lower(g) == as_expression(x).lower(g));
}

// A header-only program has kernels for these types and for no other.
TEST_CASE("an expression tells the types in which its leaves are stored", "[expression]") {
  const auto types = []<class E>(const E&) { return E::types; };
  const tensor<float, 2> x({2, 3});
  const tensor<double, 2> wide({2, 3});
  const parameter<bf16, 2> w({3, 3});
  const parameter<q8, 2> small = quantized<q8>(tensor<float, 2>({3, 3}), 0);
  constexpr type_set f32 = type_bit<float>, b16 = type_bit<bf16>, i8 = type_bit<q8>;
  const auto y = einsum<"ti,io->to">(x, w);
  CHECK(types(y) == (f32 | b16));
  CHECK(types(argument<0, 2>(1)) == 0);
  CHECK(types(einsum<"ti,io->to">(argument<0, 2>(1), small)) == i8);
  CHECK(types(relu(y) + wide) == (f32 | b16 | type_bit<double>));
  CHECK(types(where(y, x, x)) == (f32 | b16));
  CHECK(types(where(x, y, x)) == (f32 | b16));
  CHECK(types(choose(true, x, y)) == (f32 | b16));
  CHECK(types(softmax(y)) == (f32 | b16));
  CHECK(types(repeat(mean(y), 3)) == (f32 | b16));
  CHECK(types(top_k(y, 1)) == (f32 | b16));
  CHECK(types(top_k(x, y, 1)) == (f32 | b16));
  CHECK(types(kept(top_k(y, 1)).values) == (f32 | b16));
  CHECK(types(concat<1>(x, y)) == (f32 | b16));
  CHECK(types(einsum<"ti,io,to->to">(x, w, all_except({}, 2, 3))) == (f32 | b16));
  CHECK(types(gradient(y, w, x)) == (f32 | b16));
  CHECK(types(expr<float, 2>(y)) == all_types);
  CHECK(types(mxd<float>()(x)) == f32);
  CHECK(types(moe<float>()(x)) == f32);
  CHECK(types(moe<q8>()(x)) == (f32 | i8));
}

}  // namespace
