// SPDX-License-Identifier: MIT
// Checks what compile and evaluate return: one result or several, with and without tokens.
#include <cstring>
#include <thread>
#include <tuple>
#include <vector>

#include "support/agree.hpp"
#include "support/allocations.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct two_results {
  parameter<float, 2> weight = random<parameter<float, 2>>({5, 3}, 1);
  auto operator()(const operand auto& x) const {
    const auto y = einsum<"ti,io->to">(x, weight);
    return std::tuple(relu(y), einsum<"ti,to->io">(x, y));
  }
};

struct one_result {
  parameter<float, 2> weight = random<parameter<float, 2>>({5, 3}, 1);
  auto operator()(const operand auto& x) const { return relu(einsum<"ti,io->to">(x, weight)); }
};

template <std::size_t Rank>
bool same_bits(const tensor<float, Rank>& a, const tensor<float, Rank>& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_CASE("a compiled layer returns its result") {
  const one_result layer;
  const auto forward = compile(layer, 40);
  const auto x = random<tensor<float, 2>>({40, 5}, 2);
  const tensor<float, 2> y = forward(x);
  CHECK(same_bits(y, evaluate(layer(x))));
  CHECK(forward(tensor<float, 2>({0, 5})).shape() == std::array<std::size_t, 2>{0, 3});
  const tensor<float, 3> batches({4, 10, 5}, std::span<const float>(x.data(), x.size()));
  CHECK(same_bits(forward(batches), y));
  CHECK_THROWS_AS(forward(tensor<float, 2>({41, 5})), shape_error);
  CHECK_THROWS_AS(forward(tensor<float, 2>({40, 6})), shape_error);
}

TEST_CASE("a layer that is compiled for no token takes empty calls") {
  const auto forward = compile(one_result(), 0);
  CHECK(forward(tensor<float, 2>({0, 5})).shape() == std::array<std::size_t, 2>{0, 3});
  CHECK_THROWS_AS(forward(tensor<float, 2>({1, 5})), shape_error);
}

TEST_CASE("no callers or no threads are refused") {
  const one_result layer;
  CHECK_THROWS_AS(compile(layer, 4, {.callers = 0}), value_error);
  CHECK_THROWS_AS(compile(layer, 4, {.threads = 0}), value_error);
  CHECK_THROWS_AS(evaluate(layer(tensor<float, 2>({4, 5})), {.threads = 0}), value_error);
}

TEST_CASE("a compiled layer of several results returns a tuple, whose sums have no tokens") {
  const two_results layer;
  const auto forward = compile(layer, 40);
  const auto x = random<tensor<float, 2>>({30, 5}, 2);
  const auto [y, sum] = forward(x);
  tensor<float, 2> y_in_place({30, 3}), sum_in_place({5, 3});
  forward(x, y_in_place, sum_in_place);
  CHECK(same_bits(y, y_in_place));
  CHECK(same_bits(sum, sum_in_place));
}

TEST_CASE("evaluate returns the values of a tuple of expressions") {
  const two_results layer;
  const auto x = random<tensor<float, 2>>({30, 5}, 2);
  const auto e = layer(x);
  const auto [y, sum] = evaluate(e);
  CHECK(same_bits(y, evaluate(std::get<0>(e))));
  CHECK(same_bits(sum, evaluate(std::get<1>(e))));
  const auto wide = random<tensor<double, 2>>({30, 3}, 3);
  const auto [same_y, doubled] = evaluate(std::tuple(std::get<0>(e), 2.0 * wide));
  CHECK(std::is_same_v<decltype(same_y), const tensor<double, 2>>);
  for (extent i = 0; i < wide.size(); ++i) CHECK(doubled.data()[i] == 2 * wide.data()[i]);
}

TEST_CASE("a compiled layer tells its shapes and its tokens") {
  const auto forward = compile(two_results(), 40);
  CHECK(forward.tokens() == 40);
  CHECK(forward.input_shape() == std::vector<std::size_t>{5});
  CHECK(forward.output_shape() == std::vector<std::size_t>{3});
  CHECK(forward.output_shape(1) == std::vector<std::size_t>{5, 3});
  CHECK_THROWS_AS(forward.output_shape(2), std::out_of_range);
}

TEST_CASE("any number of threads call at the same time, and later calls allocate nothing") {
  const one_result layer;
  const auto forward = compile(layer, 40);
  const auto x = random<tensor<float, 2>>({40, 5}, 2);
  const auto expected = evaluate(layer(x));
  std::vector<tensor<float, 2>> y;
  for (extent i = 0; i < 8; ++i) y.emplace_back(std::array<std::size_t, 2>{40, 3});
  std::vector<std::thread> callers;
  for (auto& mine : y)
    callers.emplace_back([&] {
      for (int call = 0; call < 200; ++call) forward(x, mine);
    });
  for (auto& caller : callers) caller.join();
  for (const auto& made : y) CHECK(same_bits(made, expected));
  const long before = allocations;
  forward(x, y[0]);
  CHECK(allocations == before);
}

}  // namespace
