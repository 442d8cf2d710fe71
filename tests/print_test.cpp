// SPDX-License-Identifier: MIT
#include <fmoe/tensor.hpp>

#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "support/catch.hpp"

namespace {

using namespace fmoe;

std::string printed(const auto& t) {
  std::ostringstream out;
  out << t;
  return out.str();
}

TEST_CASE("a tensor prints as rows of numbers of one width") {
  CHECK(printed(tensor<float, 1>({3}, {1, 2.5f, -3})) == "[  1 2.5  -3]");
  CHECK(printed(tensor<double, 2>({2, 2}, {1, 20, 300, 4})) == "[[  1  20]\n [300   4]]");
  CHECK(printed(tensor<float, 3>({2, 1, 2}, {1, 2, 3, 4})) == "[[[1 2]]\n\n [[3 4]]]");
  CHECK(printed(parameter<bf16, 1>(tensor<bf16, 1>({2}))) == "[0 0]");
  CHECK(printed(tensor<double, 1>({2}, {1. / 3, 1e10})) == "[0.333333    1e+10]");
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(printed(tensor<float, 1>({2}, {infinity, -infinity})) == "[ inf -inf]");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(printed(tensor<float, 1>({2}, {nan, std::copysign(nan, -1.f)})) == "[nan nan]");
}

TEST_CASE("tensors without elements or axes print") {
  CHECK(printed(tensor<float, 2>()) == "(empty)");
  CHECK(printed(tensor<float, 1>({0})) == "[]");
  CHECK(printed(tensor<float, 2>({2, 0})) == "[[]\n []]");
  tensor<float, 0> scalar(std::array<std::size_t, 0>{});
  *scalar.data() = 7;
  CHECK(printed(scalar) == "7");
}

TEST_CASE("a large tensor prints its first and last elements") {
  tensor<float, 1> t({1001});
  std::iota(t.begin(), t.end(), 0.f);
  CHECK(printed(t) == "[   0    1    2 ...  998  999 1000]");
  CHECK(printed(tensor<float, 2>({500, 3})) ==
        "[[0 0 0]\n [0 0 0]\n [0 0 0]\n ...\n [0 0 0]\n [0 0 0]\n [0 0 0]]");
}

TEST_CASE("a tensor is a range of its elements") {
  tensor<float, 2> t({2, 3});
  float next = 0;
  for (float& x : t) x = ++next;
  CHECK(t(1, 2) == 6);
  const auto& c = t;
  CHECK(std::accumulate(c.begin(), c.end(), 0.f) == 21);
  CHECK(std::span<const float>(c).size() == 6);
  CHECK(tensor<float, 1>({6}, t)(5) == 6);
}

#ifndef NDEBUG
TEST_CASE("a debug build refuses an index that an axis does not have") {
  tensor<float, 2> t({2, 3});
  CHECK_THROWS_AS(t(2, 0), value_error);
  CHECK_THROWS_AS(t(0, 3), value_error);
  CHECK_THROWS_AS(t(-1, 0), value_error);
  CHECK(t(1, 2) == 0);
}
#endif

}  // namespace
