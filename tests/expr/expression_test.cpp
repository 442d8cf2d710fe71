// SPDX-License-Identifier: MIT
#include <fmoe/expr/expression.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using number = leaf<float, 2>;
using choice_of_two = choice<number, number>;

template <class E>
using handed_on = decltype(as_expression(std::declval<E>()));

// An lvalue is not copied; a reference to a temporary would dangle.
template <class E>
constexpr bool hands_on =
    std::is_same_v<handed_on<E&>, const E&> && std::is_same_v<handed_on<const E&>, const E&> &&
    std::is_same_v<handed_on<E>, E> && std::is_same_v<handed_on<const E>, const E>;
static_assert(hands_on<number>);
static_assert(hands_on<choice_of_two>);
static_assert(hands_on<any_expression<float, 2>>);
static_assert(std::is_same_v<handed_on<tensor<float, 2>&>, number>);
static_assert(std::is_same_v<handed_on<const parameter<float, 2>&>, number>);
static_assert(std::is_same_v<expression_t<const choice_of_two&>, choice_of_two>);

TEST_CASE("a reference to what as_expression makes of a temporary is good", "[expression]") {
  const tensor<float, 2> x({2, 3});
  const auto& kept = as_expression(choose(true, x, x));
  const auto& from_const = as_expression(std::as_const(kept));
  CHECK(&from_const == &kept);
  ir::graph g;
  CHECK(kept.lower(g) == as_expression(x).lower(g));
}

}  // namespace
