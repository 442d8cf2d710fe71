// SPDX-License-Identifier: MIT
// Spans, vectors, C arrays, mdspans and arrays of the user's own are operands, inputs and outputs.
// docs/interop.md quotes this file and those of tests/interop.
#include <fmoe/evaluate.hpp>

#if __has_include(<mdspan>)
#include <mdspan>
#endif

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/pages.hpp"
#include "support/products.hpp"

// An array of a library that fmoe does not know.
namespace other {
struct image {
  std::vector<float> pixels;
  std::size_t height, width, pitch;
};
}  // namespace other

template <class A>
  requires std::is_same_v<std::remove_const_t<A>, other::image>
struct fmoe::array_traits<A> {
  static auto view(A& a) {
    return fmoe::view_at<2>(a.pixels.data(), std::array{a.height, a.width},
                            std::array{a.pitch, std::size_t{1}});
  }
};

namespace {

using namespace fmoe;
using namespace fmoe::test;

const auto product = [](const auto& x, const auto& w) { return einsum<"ti,io->to">(x, w); };

// Elements in place, by their strides.
template <class T>
auto at(T* first, int down, int along = 1) {
  return [=](int i, int j) -> T& { return first[i * down + j * along]; };
}

TEST_CASE("C arrays", "[interop]") {
  float x[7][5], w[5][3], y[7][3];
  number(at(&x[0][0], 5), 7, 5);
  number(at(&w[0][0], 3), 5, 3);

  fmoe::evaluate(fmoe::einsum<"ti,io->to">(x, w), y);

  CHECK(is_product(at(&x[0][0], 5), at(&w[0][0], 3), at(&y[0][0], 3)));
  CHECK(view_of(x).data == &x[0][0]);
  CHECK(is_product(at(&x[0][0], 5), at(&w[0][0], 3), evaluate(product(x, w))));
  CHECK(borrow(w).data() == &w[0][0]);
  std::ranges::fill(std::span(&y[0][0], 21), 0.f);
  const auto forward = compile([&](const auto& in) { return product(in, w); }, 7);
  CHECK(allocates_nothing([&] { forward(x, y); }));
  CHECK(is_product(at(&x[0][0], 5), at(&w[0][0], 3), at(&y[0][0], 3)));
  CHECK_THROWS_AS(forward(w, y), shape_error);

  const double cube[2][3][4] = {{{1, 2, 3, 4}}};
  STATIC_REQUIRE(std::is_same_v<decltype(to_tensor(cube)), tensor<double, 3>>);
  STATIC_REQUIRE(std::is_same_v<element_of<decltype(cube)>, const double>);
  CHECK(to_tensor(cube)(0, 0, 3) == 4);
}

TEST_CASE("vectors, std::arrays and spans have one axis, or the shape that borrow gives them",
          "[interop]") {
  std::vector<float> x(35), w(15), y(21);
  number(at(x.data(), 5), 7, 5);
  number(at(w.data(), 3), 5, 3);

  const auto input = fmoe::borrow(x, {7, 5});
  const auto weight = fmoe::borrow(w, {5, 3});
  fmoe::evaluate(fmoe::einsum<"ti,io->to">(input, weight), fmoe::borrow(y, {7, 3}));

  CHECK(is_product(at(x.data(), 5), at(w.data(), 3), at(y.data(), 3)));
  const auto& fixed = y;
  STATIC_REQUIRE(!writable_array<decltype(borrow(fixed, std::array<std::size_t, 2>{7, 3})), float>);
  STATIC_REQUIRE(writable_array<decltype(borrow(y, std::array<std::size_t, 2>{7, 3})), float>);

  const std::array<float, 3> bias{1, 2, 3};
  std::vector<float> row(3), sums(7);
  const auto forward = compile([&](const auto& in) { return product(in, weight) + bias; }, 7);
  CHECK(allocates_nothing([&] { forward(std::span(x).first(5), row); }));
  for (std::size_t o = 0; o < 3; ++o) CHECK(std::abs(row[o] - (y[o] + bias[o])) < 1e-5f);

  evaluate(einsum<"ti->t">(input), std::span(sums));
  CHECK(std::abs(sums[6] - std::accumulate(x.begin() + 30, x.end(), 0.f)) < 1e-5f);
  std::vector<double> v{1, 2, 3};
  CHECK(evaluate(2 * borrow(v))(2) == 6);
  const auto kept = relu(std::vector<double>{1, 2, 3}) + v;
  v = {};
  CHECK(evaluate(kept)(2) == 6);
  STATIC_REQUIRE(!writable_array<const std::vector<float>, float>);
  STATIC_REQUIRE(!writable_array<std::span<const float>, float>);
  STATIC_REQUIRE(writable_array<const std::span<float>, float>);
  STATIC_REQUIRE(!readable_array<std::vector<int>>);
  STATIC_REQUIRE(!readable_array<std::string>);
  STATIC_REQUIRE(!array_operand<std::vector<bool>>);
  STATIC_REQUIRE(!array_operand<std::vector<std::vector<float>>> ||
                 !readable_array<std::vector<std::vector<float>>>);
  CHECK(evaluate(relu(std::vector<float>())).size() == 0);
}

// It looks like std::mdspan, which few compilers have.
template <class T, std::size_t Rank>
struct strided_array {
  using rank_type = unsigned;
  T* first;
  std::array<int, Rank> lengths, steps;

  static constexpr rank_type rank() { return Rank; }
  T* data_handle() const { return first; }
  int extent(rank_type r) const { return lengths[r]; }
  int stride(rank_type r) const { return steps[r]; }
};

TEST_CASE("arrays like std::mdspan, of any strides", "[interop]") {
  std::vector<float> in(200, 77), out(200, 77), w(15);
  number(at(in.data(), 2, 20), 7, 5);
  number(at(w.data(), 1, 5), 5, 3);
  const strided_array<const float, 2> x{in.data(), {7, 5}, {2, 20}},
      weight{w.data(), {5, 3}, {1, 5}};
  const strided_array<float, 2> y{out.data(), {7, 3}, {25, 8}};
  evaluate(product(x, weight), y);
  CHECK(is_product(at(in.data(), 2, 20), at(w.data(), 1, 5), at(out.data(), 25, 8)));
  CHECK(std::ranges::count(out, 77) == 200 - 21);
  std::ranges::fill(out, 77);
  const auto forward =
      compile([kept = to_tensor(weight)](const auto& i) { return product(i, kept); }, 7);
  CHECK(allocates_nothing([&] { forward(x, y); }));
  CHECK(is_product(at(in.data(), 2, 20), at(w.data(), 1, 5), at(out.data(), 25, 8)));
  CHECK(std::ranges::count(out, 77) == 200 - 21);
  STATIC_REQUIRE(!writable_array<decltype(x), float>);
  CHECK_THROWS_AS(borrow(x), value_error);
  CHECK_THROWS_AS(forward(strided_array<float, 2>{in.data(), {7, 5}, {-2, 1}}, y), value_error);
  const strided_array<const float, 0> number{in.data(), {}, {}};
  CHECK(to_tensor(number)() == in[0]);
}

#ifdef __cpp_lib_mdspan

TEST_CASE("mdspans", "[interop]") {
  std::vector<float> in(35), w(15), out(21);
  number(at(in.data(), 1, 7), 7, 5);
  number(at(w.data(), 3), 5, 3);
  const std::mdspan<float, std::extents<int, 7, std::dynamic_extent>, std::layout_left> x(in.data(),
                                                                                          5);
  const std::mdspan<const float, std::dextents<std::size_t, 2>> weight(w.data(), 5, 3);
  const std::mdspan<float, std::dextents<int, 2>> y(out.data(), 7, 3);
  evaluate(product(x, weight), y);
  CHECK(is_product(at(in.data(), 1, 7), at(w.data(), 3), at(out.data(), 3)));
  std::ranges::fill(out, 0.f);
  const auto forward =
      compile([kept = borrow(weight)](const auto& i) { return product(i, kept); }, 7);
  CHECK(allocates_nothing([&] { forward(x, y); }));
  CHECK(is_product(at(in.data(), 1, 7), at(w.data(), 3), at(out.data(), 3)));
  STATIC_REQUIRE(!writable_array<decltype(weight), float>);
}

#endif

TEST_CASE("arrays of a library of one's own", "[interop]") {
  other::image x{std::vector<float>(70, 77), 7, 5, 10}, y{std::vector<float>(28, 77), 7, 3, 4};
  number(at(x.pixels.data(), 10), 7, 5);
  std::vector<float> w(15);
  number(at(w.data(), 3), 5, 3);
  evaluate(product(x, borrow(w, std::array<std::size_t, 2>{5, 3})), y);
  CHECK(is_product(at(x.pixels.data(), 10), at(w.data(), 3), at(y.pixels.data(), 4)));
  CHECK(std::ranges::count(y.pixels, 77) == 7);
  STATIC_REQUIRE(!writable_array<const other::image, float>);
}

TEST_CASE("equal copies are one leaf", "[interop]") {
  const auto leaves = [](const auto& e) {
    ir::graph g;
    e.lower(g);
    int count = 0;
    for (const auto id : g.ids()) count += holds_alternative<ir::leaf_node>(g[id].op);
    return count;
  };
  std::vector<float> x{1, 2, 3};
  const auto twice = relu(x) + x;
  CHECK(leaves(twice) == 1);
  const auto before = relu(x);
  x[1] = 5;
  CHECK(leaves(before + x) == 2);
  CHECK(evaluate(before + x)(1) == 7);
  CHECK(leaves(relu(x) + std::vector<double>{1, 5, 3}) == 2);
  CHECK(leaves(relu(std::vector<float>(4)) + einsum<"ab->b">(tensor<float, 2>({1, 4}))) == 2);
  const tensor<float, 1> a({3}), b({3});
  CHECK(leaves(relu(a) + b) == 2);
}

TEST_CASE("the page quotes the tests", "[interop]") {
  std::vector<std::string> here;
  for (const std::string name : {"interop_test", "interop/eigen_test", "interop/xtensor_test"}) {
    const auto lines = lines_of(content("tests/" + name + ".cpp"));
    here.insert(here.end(), lines.begin(), lines.end());
  }
  const auto quoted = blocks_of("docs/interop.md", "cpp");
  CHECK(quoted.size() == 7);
  for (const auto& block : quoted) {
    INFO(block.front());
    CHECK(holds(here, block));
  }
}

}  // namespace
