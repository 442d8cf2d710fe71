// SPDX-License-Identifier: MIT
#include <fmoe/arrays/sliced.hpp>
#include <fmoe/arrays/viewed.hpp>
#include <fmoe/evaluate.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("a tensor is zero, row-major and aligned to a cache line", "[tensor]") {
  for (const extent n : {extent{1}, extent{7}, extent{1000}, extent{1} << 20}) {
    const tensor<float, 2> t({n, 3});
    CHECK(t.size() == 3 * n);
    CHECK(reinterpret_cast<std::uintptr_t>(t.data()) % 64 == 0);
    CHECK(std::all_of(t.data(), t.data() + t.size(), [](float x) { return x == 0; }));
  }
  tensor<double, 3> t({2, 3, 4});
  std::iota(t.data(), t.data() + t.size(), 0.0);
  CHECK(t(0, 0, 3) == 3);
  CHECK(t(0, 1, 0) == 4);
  CHECK(t(1, 2, 3) == 23);
  CHECK(t.shape() == std::array<extent, 3>{2, 3, 4});
}

TEST_CASE("a shape whose bytes overflow is refused, also beside a zero", "[tensor]") {
  constexpr extent half = extent{1} << 32;
  CHECK_THROWS_AS((tensor<float, 2>({half, half})), shape_error);
  CHECK_THROWS_AS((tensor<float, 1>({extent{1} << 62})), shape_error);
  CHECK_THROWS_AS((tensor<double, 1>({extent{1} << 61})), shape_error);
  CHECK_THROWS_AS((tensor<float, 3>({half, 0, half})), shape_error);
  CHECK_THROWS_AS((tensor<float, 3>({0, half, half})), shape_error);
  CHECK_THROWS_AS((tensor<bf16, 3>({~extent{0}, ~extent{0}, 0})), shape_error);
  CHECK_THROWS_AS(element_count(std::array{~extent{0}, extent{2}}), shape_error);
  CHECK(element_count(std::array{~extent{0}}) == ~extent{0});
  CHECK(element_count(std::array{~extent{0}, extent{0}}) == 0);
}

template <std::size_t Rank>
void check_rank() {
  std::array<extent, Rank> shape;
  shape.fill(2);
  const tensor<f16, Rank> t(shape);
  CHECK(t.size() == extent{1} << Rank);
  static_assert(tensor<f16, Rank>::rank == Rank);
  if constexpr (Rank > 0) {
    shape[Rank / 2] = 0;
    const tensor<f16, Rank> none(shape);
    CHECK(none.size() == 0);
    CHECK(!none.empty());
  }
}

TEST_CASE("values in braces are in row-major order, and as many as the shape says", "[tensor]") {
  const tensor<float, 2> x({2, 3}, {0, 1, 2, 3, 4, 5});
  CHECK(x(1, 0) == 3);
  CHECK_THROWS_AS((tensor<float, 2>({2, 3}, {0, 1})), shape_error);
}

TEST_CASE("ranks 0 to 8, with and without elements", "[tensor]") {
  [&]<std::size_t... R>(std::index_sequence<R...>) {
    (check_rank<R>(), ...);
  }(std::make_index_sequence<9>{});
  tensor<float, 0> scalar{std::array<extent, 0>{}};
  scalar() = 3;
  CHECK(*scalar.data() == 3);
}

TEST_CASE("a copy has the elements of its original until one of them is written", "[tensor]") {
  tensor<float, 1> a({3}, {1, 2, 3});
  const auto elements = [](const auto& t) { return t.data(); };
  const tensor<float, 1> b = a;
  const parameter<float, 1> p = a;
  tensor<float, 1> c = b;
  CHECK(elements(b) == elements(a));
  CHECK(elements(p) == elements(a));

  c(1) = 5;
  CHECK(c(1) == 5);
  CHECK(std::as_const(a)(1) == 2);
  CHECK(b(1) == 2);
  const auto* const own = elements(c);
  c(2) = 6;
  CHECK(elements(c) == own);  // it is copied once

  a(0) = 9;
  CHECK(b(0) == 1);
  CHECK(p(0) == 1);
  CHECK(std::as_const(a)(0) == 9);
}

TEST_CASE("copies that share their elements are one leaf", "[tensor]") {
  const tensor<float, 1> a({3}, {1, 2, 3});
  auto b = a;
  const auto size_of = [](const auto& e) {
    ir::graph g;
    e.lower(g);
    return g.size();
  };
  CHECK(size_of(a + b) == 2);
  b(0) = 4;
  CHECK(size_of(a + b) == 3);
}

TEST_CASE("a copy that is left alone has the elements, and writes them in place", "[tensor]") {
  auto a = std::make_optional(tensor<float, 1>({3}, {1, 2, 3}));
  tensor<float, 1> b = *a;
  const float* const elements = std::as_const(b).data();
  a.reset();
  b(0) = 4;
  CHECK(std::as_const(b).data() == elements);
}

TEST_CASE("an assignment of the same shape is a write", "[tensor]") {
  tensor<float, 1> a({2}, {1, 2});
  const auto twice = a + a;
  const tensor<float, 1> copy = a;
  const auto version = a.shared_storage()->version();
  a = tensor<float, 1>({2}, {3, 4});
  CHECK(a.shared_storage()->version() != version);
  CHECK(evaluate(twice)(1) == 8);
  CHECK(copy(1) == 2);
  a = copy;
  CHECK(evaluate(twice)(1) == 4);
  a(1) = 7;
  CHECK(copy(1) == 2);

  a = *&a;
  CHECK(a(1) == 7);
  a = tensor<float, 1>({3});  // of another shape: what was read before is not this tensor any more
  CHECK(a.size() == 3);
  CHECK(evaluate(twice)(1) == 14);
  a = {};
  CHECK(a.empty());
}

TEST_CASE("a default-constructed tensor holds nothing", "[tensor]") {
  const tensor<float, 2> none;
  CHECK(none.empty());
  CHECK(none.data() == nullptr);
  CHECK(none.size() == 0);
  const tensor<float, 2> copy = none;
  CHECK(copy.empty());
}

TEST_CASE("extents in braces are of any integral type", "[tensor]") {
  const long rows = 2, columns = 3, negative = -1;
  const int four = 4;
  CHECK(tensor<float, 2>({rows, columns}).shape() == std::array<extent, 2>{2, 3});
  CHECK(tensor<float, 1>({four}).size() == 4);
  CHECK(tensor<float, 1>({extent{4}}).size() == 4);
  CHECK(tensor<float, 2>({1u, 2u}).size() == 2);
  CHECK(tensor<float, 2>({rows, columns}, {1, 2, 3, 4, 5, 6})(1, 2) == 6);
  CHECK(tensor<float, 2>({2, 3}, {1, 2, 3, 4, 5, 6})(1, 0) == 4);
  const parameter<float, 2> p({rows, columns});
  CHECK(p.size() == 6);
  CHECK_THROWS_AS((tensor<float, 2>({rows, negative})), shape_error);
}

TEST_CASE("a tensor of given values checks their number", "[tensor]") {
  const std::array<float, 4> values{1, 2, 3, 4};
  const tensor<float, 2> t({2, 2}, values);
  CHECK(t(1, 0) == 3);
  CHECK_THROWS_AS((tensor<float, 2>({2, 3}, values)), shape_error);
  CHECK_THROWS_AS((tensor<float, 1>({3}, values)), shape_error);
}

TEST_CASE("borrow copies nothing and counts", "[tensor]") {
  std::vector<float> v{1, 2, 3, 4, 5, 6};
  const auto t = borrow(v, std::array<extent, 2>{2, 3});
  CHECK(t.data() == v.data());
  v[5] = 9;
  CHECK(t(1, 2) == 9);
  const std::vector<double> fixed(4);
  CHECK(borrow(fixed, std::array<extent, 1>{3}).data() == fixed.data());
  float raw[4] = {};
  CHECK(borrow(raw, std::array<extent, 1>{4}).data() == raw);
  std::span<float> s(v);
  CHECK(borrow(s, std::array<extent, 1>{2}).data() == v.data());
  CHECK_THROWS_AS(borrow(v, std::array<extent, 1>{7}), shape_error);
  CHECK_THROWS_AS(borrow(v, std::array<extent, 2>{extent{1} << 63, 2}), shape_error);

  const extent count = 2;
  const int n = 3, negative = -3;
  CHECK(borrow(v, {count, n}).shape() == std::array<extent, 2>{2, 3});
  CHECK(borrow(v, {2u, 3l}).data() == v.data());
  CHECK(borrow(std::span(v.data(), 4), {2, 2}).data() == v.data());
  CHECK(borrow(std::span(v), std::array<extent, 1>{6}).data() == v.data());
  CHECK(borrow(std::span(v)).data() == v.data());
  STATIC_REQUIRE(std::is_const_v<decltype(borrow(std::as_const(v), {2, 3}))>);
  CHECK_THROWS_AS(borrow(v, {7}), shape_error);
  CHECK_THROWS_AS(borrow(v, {2, negative}), shape_error);
}

TEST_CASE("borrowed elements are written in place, those of copies and const ones are not",
          "[tensor]") {
  std::vector<float> v{1, 2, 3};
  auto t = borrow(v, std::array<extent, 1>{3});
  auto copy = t;
  copy(0) = 5;
  CHECK(v[0] == 1);
  t(1) = 6;
  CHECK(v[1] == 6);
  tensor<float, 1> moved({3});
  moved = std::move(t);
  moved(2) = 7;
  CHECK(v[2] == 7);

  const std::vector<float> fixed{1, 2};
  tensor<float, 1> own = borrow(fixed, std::array<extent, 1>{2});
  own(0) = 3;
  CHECK(fixed[0] == 1);
  CHECK(own(0) == 3);
}

TEST_CASE("storage derives once for a key", "[tensor]") {
  const tensor<float, 1> t({1});
  int calls = 0;
  const auto make = [&] { return std::make_shared<int>(++calls); };
  const auto a = t.shared_storage()->derived("a", make),
             again = t.shared_storage()->derived("a", make);
  CHECK(a == again);
  CHECK(t.shared_storage()->derived("b", make) != a);
  CHECK(calls == 2);
}

// Returns the value of a 16-bit pattern, from its fields.
double value_of(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1),
            fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const double significand = fraction + (exponent != 0 ? 1 << fraction_bits : 0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias - fraction_bits);
}

template <class T>
T from_bits(unsigned bits) {
  T x;
  x.bits = static_cast<std::uint16_t>(bits);
  return x;
}

// Converts all patterns there and back, and the neighbours of every midpoint between neighbours.
template <class T>
void check_conversions(int exponent_bits, int fraction_bits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  int wrong = 0;
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const T x = from_bits<T>(bits);
    const float f = static_cast<float>(x);
    const double expected = value_of(x.bits, exponent_bits, fraction_bits);
    if (std::isnan(expected)) {
      wrong += !std::isnan(f) || std::signbit(f) != (bits >> 15 != 0) ||
               !std::isnan(static_cast<float>(T(f)));
      continue;
    }
    wrong +=
        static_cast<double>(f) != expected || std::signbit(f) != (bits >> 15 != 0) || T(f) != x;
    if (std::isinf(expected)) continue;
    const unsigned next_bits = bits + 1;  // away from zero
    const double next =
        value_of(static_cast<std::uint16_t>(next_bits), exponent_bits, fraction_bits);
    const int largest = (1 << exponent_bits) - 2;
    const double step = std::ldexp(1.0, largest - ((1 << (exponent_bits - 1)) - 1) - fraction_bits);
    const double middle =
        std::isinf(next) ? expected + std::copysign(step / 2, expected) : (expected + next) / 2;
    const float m = static_cast<float>(middle);
    const T even = bits % 2 == 0 ? x : from_bits<T>(next_bits), further = from_bits<T>(next_bits);
    if (static_cast<double>(m) == middle) wrong += T(m) != even;
    wrong += T(std::nextafter(m, 0.f)) != x;
    wrong += T(std::nextafter(m, std::copysign(infinity, m))) != further;
  }
  CHECK(wrong == 0);
  CHECK(static_cast<float>(T(std::numeric_limits<float>::max())) == infinity);
  CHECK(static_cast<float>(T(-infinity)) == -infinity);
  CHECK(std::signbit(static_cast<float>(T(-0.f))));
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7f801fffu})
    CHECK(std::isnan(static_cast<float>(T(std::bit_cast<float>(nan)))));
}

TEST_CASE("bf16 converts exactly and rounds to nearest, ties to even", "[tensor]") {
  check_conversions<bf16>(8, 7);
}

TEST_CASE("f16 converts exactly and rounds to nearest, ties to even", "[tensor]") {
  check_conversions<f16>(5, 10);
  CHECK(f16(65519.99f).bits == 0x7bff);
  CHECK(f16(65520.f).bits == 0x7c00);
  CHECK(f16(0x1p-25f).bits == 0);
  CHECK(f16(std::nextafter(0x1p-25f, 1.f)).bits == 1);
  CHECK(f16(-0x1p-26f).bits == 0x8000);
}

TEST_CASE("dtypes have names, sizes and one arithmetic type", "[tensor]") {
  CHECK(std::string(name_of(dtype_of<bf16>)) == "bfloat16");
  CHECK(size_of(dtype::float64) == 8);
  CHECK(size_of(dtype::float16) == 2);
  for (const dtype d : {dtype::float64, dtype::float32, dtype::bfloat16, dtype::float16})
    CHECK(with_type(d, [](auto* p) { return dtype_of<std::remove_pointer_t<decltype(p)>>; }) == d);
  static_assert(std::is_same_v<arithmetic_t<bf16, f16>, float>);
  static_assert(std::is_same_v<arithmetic_t<bf16, double>, double>);
  CHECK(convert<double>(bf16(1.5f)) == 1.5);
  CHECK(convert<float>(2.5) == 2.5f);
}

TEST_CASE("a slice holds the elements with one index along an axis", "[tensor]") {
  parameter<float, 3> t({2, 3, 4});
  std::iota(t.begin(), t.end(), 0.f);
  const auto check = [&]<extent Axis>(std::integral_constant<extent, Axis>) {
    for (extent n = 0; n < t.shape()[Axis]; ++n) {
      const auto part = sliced<Axis>(t, n);
      for (extent i = 0; i < part.shape()[0]; ++i)
        for (extent j = 0; j < part.shape()[1]; ++j)
          CHECK(part(i, j) == (Axis == 0 ? t(n, i, j) : Axis == 1 ? t(i, n, j) : t(i, j, n)));
    }
  };
  check(std::integral_constant<extent, 0>());
  check(std::integral_constant<extent, 1>());
  check(std::integral_constant<extent, 2>());
  CHECK(sliced<1>(tensor<float, 2>({0, 3}), 2).size() == 0);
}

TEST_CASE("leading axes are flattened without a copy", "[tensor]") {
  tensor<float, 3> t({2, 3, 4});
  auto rows = flattened(t);
  CHECK(rows.shape() == std::array<extent, 2>{6, 4});
  rows(4, 1) = 5;
  CHECK(t(1, 1, 1) == 5);
  CHECK(flattened(tensor<float, 4>({2, 0, 3, 4})).shape() == std::array<extent, 2>{0, 4});
}

}  // namespace
