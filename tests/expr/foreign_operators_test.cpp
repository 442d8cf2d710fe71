// SPDX-License-Identifier: MIT
// fmoe's operators ask nothing of types that are not fmoe's but whether they are: array_traits of
// the type below cannot be instantiated at all, and its own operators work under using namespace.
#include <fmoe/evaluate.hpp>

#include <concepts>
#include <string>

#include "../support/catch.hpp"

namespace foreign {

struct number {
  int value;

  friend bool operator==(number, number) = default;
};

template <class A, class B>
number operator+(const A& a, const B& b) {
  return {a.value + b.value};
}
template <class A, class B>
number operator-(const A& a, const B& b) {
  return {a.value - b.value};
}
template <class A, class B>
number operator*(const A& a, const B& b) {
  return {a.value * b.value};
}
template <class A, class B>
number operator/(const A& a, const B& b) {
  return {a.value / b.value};
}
template <class A>
number operator-(const A& a) {
  return {-a.value};
}

}  // namespace foreign

template <class A>
  requires std::same_as<std::remove_const_t<A>, foreign::number>
struct fmoe::array_traits<A> {
  static_assert(!std::same_as<std::remove_const_t<A>, foreign::number>,
                "an operator of fmoe asks whether a number of another library is an array");
};

using namespace fmoe;

namespace {

// True if an operand of type A and one of type B can be added, subtracted, multiplied or divided.
template <class A, class B>
concept joins = requires(const A& a, const B& b) { a + b; } || requires(const A& a, const B& b) {
  a - b;
} || requires(const A& a, const B& b) { a * b; } || requires(const A& a, const B& b) { a / b; };

using matrix = tensor<float, 2>;

static_assert(joins<matrix, matrix>);
static_assert(joins<matrix, double>);
static_assert(joins<parameter<float, 1>, matrix>);
static_assert(joins<matrix, std::vector<float>>, "an array of another library beside a tensor");
static_assert(!joins<std::vector<float>, std::vector<float>>, "two arrays of other libraries");

TEST_CASE("operators of other libraries are theirs, and their types are not asked", "[expr]") {
  const foreign::number six{6}, two{2};
  CHECK(six + two == foreign::number{8});
  CHECK(six - two == foreign::number{4});
  CHECK(six * two == foreign::number{12});
  CHECK(six / two == foreign::number{3});
  CHECK(-six == foreign::number{-6});
  CHECK(std::string("a") + std::string("b") == "ab");
}

}  // namespace
