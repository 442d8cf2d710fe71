// SPDX-License-Identifier: MIT
// xtensor's objects are operands of expressions, and inputs and outputs of calls. docs/interop.md
// quotes this file.
#include <fmoe/evaluate.hpp>
#include <fmoe/xtensor.hpp>

#if __has_include(<xtensor/views/xview.hpp>)  // from 0.26 on
#include <xtensor/containers/xarray.hpp>
#include <xtensor/containers/xfixed.hpp>
#include <xtensor/containers/xtensor.hpp>
#include <xtensor/core/xmath.hpp>
#include <xtensor/generators/xbuilder.hpp>
#include <xtensor/misc/xmanipulation.hpp>
#include <xtensor/views/xdynamic_view.hpp>
#include <xtensor/views/xindex_view.hpp>
#include <xtensor/views/xstrided_view.hpp>
#include <xtensor/views/xview.hpp>
#else
#include <xtensor/xarray.hpp>
#include <xtensor/xbuilder.hpp>
#include <xtensor/xdynamic_view.hpp>
#include <xtensor/xfixed.hpp>
#include <xtensor/xindex_view.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xstrided_view.hpp>
#include <xtensor/xtensor.hpp>
#include <xtensor/xview.hpp>
#endif

#include "../support/agree.hpp"
#include "../support/allocations.hpp"
#include "../support/products.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T>
using columns_first = xt::xtensor<T, 2, xt::layout_type::column_major>;

constexpr sizes n;
constexpr float untouched = 77;

const auto product = [](const auto& x, const auto& w) { return einsum<"ti,io->to">(x, w); };

template <class T = float>
xt::xtensor<T, 2> weights() {
  xt::xtensor<T, 2> w({5, 3});
  number(w, n.inputs, n.outputs);
  return w;
}

template <class T = float>
auto compiled_product() {
  return compile([w = to_tensor(weights<T>())](const auto& x) { return product(x, w); }, n.tokens);
}

template <class A>
void fill(A&& a, int rows, int columns, float value) {
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) a(i, j) = value;
}

// Checks inputs and outputs of calls, and operands if the type tells the rank.
template <class X, class Y>
void check_product(X&& x, Y&& y) {
  using T = typename std::remove_cvref_t<X>::value_type;
  const auto w = weights<T>();
  number(x, n.tokens, n.inputs);
  fill(y, n.tokens, n.outputs, untouched);
  compiled_product<T>()(x, y);
  CHECK(is_product(x, w, y));

  fill(y, n.tokens, n.outputs, untouched);
  evaluate(product(to_tensor<2>(x), w), y);
  CHECK(is_product(x, w, y));
  if constexpr (rank_of<std::remove_reference_t<X>> == 2)
    CHECK(is_product(x, w, evaluate(product(x, w))));
}

TEST_CASE("tensors and arrays, row- and column-major, fixed and dynamic", "[xtensor]") {
  check_product(xt::xtensor<float, 2>({7, 5}), xt::xtensor<float, 2>({7, 3}));
  check_product(columns_first<float>({7, 5}), columns_first<float>({7, 3}));
  check_product(xt::xarray<float>(std::vector<std::size_t>{7, 5}), columns_first<float>({7, 3}));
  check_product(xt::xtensor<float, 2>({7, 5}), xt::xarray<float>(std::vector<std::size_t>{7, 3}));
  check_product(xt::xtensor_fixed<float, xt::xshape<7, 5>>(),
                xt::xtensor_fixed<float, xt::xshape<7, 3>>());
  check_product(
      xt::xtensor<float, 2, xt::layout_type::dynamic>({7, 5}, xt::layout_type::column_major),
      xt::xtensor<float, 2>({7, 3}));
  check_product(columns_first<double>({7, 5}), xt::xarray<double>(std::vector<std::size_t>{7, 3}));
}

TEST_CASE("adapted buffers and views are read and written where they lie", "[xtensor]") {
  std::vector<float> in(35), out(21), room(300, untouched);
  check_product(
      xt::adapt(in, std::array<std::size_t, 2>{7, 5}),
      xt::adapt(out.data(), out.size(), xt::no_ownership(), std::vector<std::size_t>{7, 3}));
  CHECK(in[34] == number_at(6, 4));
  check_product(xt::adapt<xt::layout_type::column_major>(in, std::array<std::size_t, 2>{7, 5}),
                xt::adapt(out, std::array<std::size_t, 2>{7, 3}));
  CHECK(in[7 * 4 + 6] == number_at(6, 4));
  check_product(xt::adapt(in, std::array<std::size_t, 2>{7, 5}),
                xt::view(xt::adapt(room, std::array<std::size_t, 2>{10, 30}), xt::range(2, 9),
                         xt::range(1, 13, 4)));
  const auto& read_only = in;
  xt::xtensor<float, 2> y({7, 3});
  compiled_product()(xt::adapt(read_only, std::array<std::size_t, 2>{7, 5}), y);
  CHECK(is_product(xt::adapt(in, std::array<std::size_t, 2>{7, 5}), weights(), y));
  CHECK(std::ranges::count(room, untouched) == 300 - n.tokens * n.outputs);

  xt::xtensor<float, 2> large = xt::ones<float>({20, 20}) * untouched, result = large;
  columns_first<float> other = large;
  using xt::range;
  check_product(xt::view(large, range(2, 9), range(3, 8)),
                xt::view(other, range(4, 11), range(5, 8)));
  CHECK(xt::count_nonzero(xt::equal(other, untouched))() == 400 - 21);
  check_product(xt::view(other, range(0, 14, 2), range(1, 16, 3)),
                xt::view(result, range(1, 15, 2), range(2, 8, 2)));
  CHECK(xt::count_nonzero(xt::equal(result, untouched))() == 400 - 21);
  check_product(xt::strided_view(large, {range(2, 9), range(3, 8)}),
                xt::strided_view(other, {range(4, 11), range(5, 8)}));
  xt::xtensor<float, 2> lying({5, 7}), lying_result({3, 7});
  check_product(xt::transpose(lying), xt::transpose(lying_result));
  xt::xarray<float> dynamic = xt::ones<float>({20, 20}) * untouched;
  check_product(xt::view(dynamic, range(2, 9), range(3, 8)),
                xt::view(dynamic, range(11, 18), range(3, 6)));
  CHECK(xt::count_nonzero(xt::equal(dynamic, untouched))() == 400 - 35 - 21);
  xt::xtensor<float, 3> cube = xt::ones<float>({4, 7, 5});
  check_product(xt::view(cube, 2, xt::all(), xt::all()), xt::view(cube, 3, xt::all(), range(0, 3)));
  CHECK(cube(1, 6, 4) == 1);
  CHECK(cube(3, 6, 3) == 1);
}

TEST_CASE("one axis, and more axes of tokens", "[xtensor]") {
  xt::xtensor<float, 2> x({7, 5}), y({7, 3});
  number(x, n.tokens, n.inputs);
  const auto forward = compiled_product();
  for (int t = 0; t < n.tokens; ++t) forward(xt::view(x, t, xt::all()), xt::row(y, t));
  CHECK(is_product(x, weights(), y));

  const xt::xtensor<float, 1> bias = {1, 2, 3};
  evaluate(product(x, weights()) + bias, y);
  y -= bias;
  CHECK(is_product(x, weights(), y));

  xt::xarray<float> batch = xt::ones<float>({2, 3, 5}), made = xt::zeros<float>({2, 3, 3});
  forward(batch, made);
  CHECK(made(1, 2, 1) == made(0, 0, 1));
  CHECK(std::abs(made(1, 2, 0) - (1 + 1.25f + 1.5f + 1.75f + 2)) < 1e-5);
}

TEST_CASE("a call copies and allocates nothing", "[xtensor]") {
  const columns_first<float> x = xt::ones<float>({7, 5});
  xt::xtensor<float, 2> y = xt::ones<float>({20, 20});
  CHECK(view_of(x).data == x.data());
  CHECK(view_of(x).strides[1] == 7);
  auto part = xt::view(y, xt::range(3, 10), xt::range(2, 5));
  CHECK(view_of(part).data == &y(3, 2));
  CHECK(view_of(part).strides[0] == 20);
  const auto forward = compiled_product();
  CHECK(allocates_nothing([&] { forward(x, part); }));
  CHECK(is_product(x, weights(), part));
}

TEST_CASE("lazy expressions are evaluated when an expression is made of them, or for a call",
          "[xtensor]") {
  xt::xtensor<float, 2> x({7, 5}), y({7, 3});
  number(x, n.tokens, n.inputs);
  const xt::xtensor<float, 2> sum = 2 * x + xt::sqrt(xt::abs(x)), before = sum;
  const auto e = [] {
    xt::xtensor<float, 2> a({7, 5});
    number(a, n.tokens, n.inputs);
    return product(2 * a + xt::sqrt(xt::abs(a)), weights());
  }();
  CHECK(is_product(sum, weights(), evaluate(e)));
  evaluate(product(2 * x + xt::sqrt(xt::abs(x)), weights()), y);
  CHECK(is_product(sum, weights(), y));
  y.fill(untouched);
  compiled_product()(2 * x + xt::sqrt(xt::abs(x)), y);
  CHECK(is_product(sum, weights(), y));
  y.fill(untouched);
  const xt::xarray<float> dynamic = x;
  compiled_product()(2 * dynamic + xt::sqrt(xt::abs(dynamic)), y);
  CHECK(is_product(sum, weights(), y));
  CHECK(is_product(
      sum, weights(),
      evaluate(product(to_tensor<2>(2 * dynamic + xt::sqrt(xt::abs(dynamic))), weights()))));

  // These views have no strides: one is of an expression, the others are made by lists of indices.
  xt::xtensor<float, 2> large = xt::zeros<float>({14, 5});
  for (extent i = 0; i < 7; ++i)
    xt::row(large, static_cast<std::ptrdiff_t>(2 * i)) = xt::row(x, static_cast<std::ptrdiff_t>(i));
  compiled_product()(xt::view(large, xt::keep(0, 2, 4, 6, 8, 10, 12), xt::all()), y);
  CHECK(is_product(x, weights(), y));
  compiled_product()(xt::dynamic_view(large, {xt::keep(0, 2, 4, 6, 8, 10, 12), xt::all()}), y);
  CHECK(is_product(x, weights(), y));
  compiled_product()(
      xt::view(xt::cast<float>(xt::cast<int>(4 * large)) / 4.f, xt::range(0, 14, 2), xt::all()), y);
  CHECK(is_product(x, weights(), y));
  CHECK(evaluate(relu(xt::ones<float>({4}) * 2.f))(3) == 2);
}

TEST_CASE("row-major memory is borrowed, and an array's rank is said", "[xtensor]") {
  xt::xtensor<float, 2> x({7, 5});
  number(x, n.tokens, n.inputs);
  CHECK(borrow(x).data() == x.data());
  const auto e = product(borrow(x), weights());
  x *= 2.f;
  CHECK(is_product(x, weights(), evaluate(e)));
  const xt::xarray<float> fixed = x;
  STATIC_REQUIRE(std::is_same_v<decltype(borrow<2>(fixed)), const tensor<float, 2>>);
  CHECK(borrow<2>(fixed).data() == fixed.data());
  CHECK_THROWS_WITH(borrow<3>(fixed), "[tensor] an array has 2 axes, not 3");
  CHECK_THROWS_AS(to_tensor<1>(fixed), shape_error);
  columns_first<float> columns = x;
  CHECK_THROWS_AS(borrow(columns), value_error);
  auto part = xt::view(x, xt::all(), xt::range(0, 3));
  CHECK_THROWS_AS(borrow(part), value_error);
  auto rows = xt::view(x, xt::range(2, 7), xt::all());
  CHECK(borrow(rows).data() == &x(2, 0));
}

TEST_CASE("an array in, an array out", "[xtensor]") {
  const xt::xarray<float> x = xt::ones<float>({7, 5});
  const xt::xtensor<float, 2> w = weights();

  xt::xarray<float> y = xt::zeros<float>({7, 3});
  fmoe::evaluate(fmoe::einsum<"ti,io->to">(fmoe::borrow<2>(x), 2 * w), y);

  CHECK(is_product(x, xt::eval(2 * w), y));
}

TEST_CASE("what cannot be written or read is refused", "[xtensor]") {
  STATIC_REQUIRE(writable_array<xt::xarray<float>, float>);
  STATIC_REQUIRE(!writable_array<const xt::xarray<float>, float>);
  STATIC_REQUIRE(!writable_array<xt::xarray<double>, float>);
  STATIC_REQUIRE(!writable_array<decltype(std::declval<xt::xarray<float>&>() + 1.f), float>);
  STATIC_REQUIRE(
      !writable_array<decltype(xt::view(std::declval<const xt::xarray<float>&>(), 0)), float>);
  STATIC_REQUIRE(
      !writable_array<decltype(xt::adapt(std::declval<const std::vector<float>&>(), {2, 3})),
                      float>);
  STATIC_REQUIRE(!readable_array<xt::xarray<int>>);
  STATIC_REQUIRE(!readable_array<xt::xtensor<bool, 2>>);
  STATIC_REQUIRE(!readable_array<xt::xarray<std::complex<float>>>);
  STATIC_REQUIRE(!readable_array<decltype(std::declval<xt::xarray<int>&>() + 1)>);

  xt::xarray<float> x = xt::ones<float>({7, 5}), y = xt::ones<float>({7, 3}) * untouched;
  const auto forward = compiled_product();
  CHECK_THROWS_AS(forward(xt::flip(x, 0), y), value_error);
  CHECK_THROWS_AS(forward(xt::view(x, xt::all(), xt::range(0, 4)), y), shape_error);
  CHECK_THROWS_AS(forward(xt::broadcast(x, {2, 7, 5}), y), shape_error);
  CHECK_THROWS_AS(forward(xt::view(y, xt::range(0, 1)), xt::view(y, xt::range(0, 1))), shape_error);
  CHECK_THROWS_AS(
      forward(xt::adapt(y.data(), 15, xt::no_ownership(), std::vector<std::size_t>{3, 5}),
              xt::view(y, xt::range(0, 3))),
      value_error);
  xt::xarray<float> none;
  CHECK_THROWS_AS(evaluate(product(to_tensor<2>(x), weights()), none), shape_error);
  CHECK(xt::all(xt::equal(y, untouched)));
}

TEST_CASE("no elements", "[xtensor]") {
  xt::xtensor<float, 2> y({0, 3}), zeros = xt::ones<float>({2, 3});
  compiled_product()(xt::xtensor<float, 2>({0, 5}), y);
  evaluate(product(xt::xtensor<float, 2>({0, 5}), weights()), y);
  evaluate(product(xt::xtensor<float, 2>({2, 0}), xt::xtensor<float, 2>({0, 3})), zeros);
  CHECK(xt::all(xt::equal(zeros, 0.f)));
}

TEST_CASE("operators of two xtensor objects stay xtensor's", "[xtensor]") {
  using namespace fmoe;
  xt::xtensor<float, 2> a = xt::ones<float>({2, 2});
  const xt::xtensor<float, 2> b = a;
  STATIC_REQUIRE(xt::is_xexpression<decltype(a + b)>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(b * b)>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(b - a)>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(2.0 * b)>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(-b)>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(exp(b))>::value);
  STATIC_REQUIRE(xt::is_xexpression<decltype(sqrt(b))>::value);
  STATIC_REQUIRE(expression<decltype(relu(a) + a)>);
  STATIC_REQUIRE(expression<decltype(b * relu(a))>);
  STATIC_REQUIRE(expression<decltype(a - relu(b))>);
  STATIC_REQUIRE(expression<decltype(relu(b) - 2 * a)>);
  CHECK(evaluate(3 * a - relu(b))(1, 1) == 2);
}

TEST_CASE("a tensor is seen as xtensor's", "[xtensor]") {
  tensor<float, 3> t({2, 3, 4});
  auto seen = fmoe::as_xtensor(t);
  seen(1, 2, 3) = 5;
  CHECK(seen.data() == t.data());
  CHECK(t(1, 2, 3) == 5);
  CHECK(xt::sum(seen)() == 5);
  const tensor<double, 1> v({3});
  const auto fixed = as_xtensor(v);
  CHECK((fixed.data() == v.data() && fixed.shape()[0] == 3));
  STATIC_REQUIRE(!writable_array<decltype(as_xtensor(v)), double>);
}

}  // namespace
