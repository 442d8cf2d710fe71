// SPDX-License-Identifier: MIT
// fmoe's operators ask nothing of types that are not fmoe's but whether they are: array_traits of
// the type below cannot be instantiated at all, and its own operators work under using namespace.
// What fmoe refuses to print, others may print.
#include <fmoe/arrays/released.hpp>
#include <fmoe/evaluate.hpp>

#include <concepts>
#include <ostream>
#include <ranges>
#include <sstream>
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

// A layer and an expression that have a text, in each way to give them one.
template <int Way>
struct layer {
  static void released(auto&, auto&&) {}
};
std::ostream& operator<<(std::ostream& out, const layer<0>&) { return out << "layer 0"; }
template <class Stream>
Stream& operator<<(Stream& out, const layer<1>&) {
  out << "layer 1";
  return out;
}
struct formula : fmoe::expr<float, 2> {
  // Any expression becomes one.
  formula(const fmoe::expression auto& e) : fmoe::expr<float, 2>(e) {}
};
std::ostream& operator<<(std::ostream& out, const formula&) { return out << "formula"; }

// A stream that takes everything.
struct log {
  int lines = 0;

  template <class T>
  log& operator<<(const T&) {
    ++lines;
    return *this;
  }
};

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

TEST_CASE("layers and expressions that have a text print it", "[expr]") {
  const matrix x({2, 3});
  std::ostringstream out;
  out << foreign::layer<0>() << ", " << foreign::layer<1>() << ", " << foreign::formula(relu(x));
  static_cast<std::ostream&>(out) << ", " << foreign::layer<1>();
  CHECK(out.str() == "layer 0, layer 1, formula, layer 1");
  foreign::log log;
  log << relu(x) << foreign::layer<0>();
  CHECK(log.lines == 2);
}

TEST_CASE("an expression is no range and no number, and becomes what says so itself", "[expr]") {
  const matrix x({2, 3});
  const auto e = relu(x);
  using formula = std::remove_const_t<decltype(e)>;
  static_assert(!std::ranges::range<formula> && !std::convertible_to<formula, double>);
  foreign::formula sum = e;
  sum = sum + x;
  CHECK(evaluate(sum).shape() == x.shape());
}

}  // namespace
