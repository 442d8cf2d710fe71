// SPDX-License-Identifier: MIT
// Checks that a screened selection has the bits of a selection from all scores, whatever the
// numbers are.
#include <cmath>
#include <limits>

#include <fmoe/compile.hpp>
#include <fmoe/evaluate.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/expr/pointwise.hpp>
#include <fmoe/expr/rows.hpp>

#include "support/agree.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr float infinity = std::numeric_limits<float>::infinity(),
                nan = std::numeric_limits<float>::quiet_NaN();

template <class Weights>
void check_same(const tensor<float, 2>& x, const Weights& gate, const parameter<float, 1>& bias,
                extent k) {
  compile_options off;
  off.screen = false;
  const extent n = gate.shape()[1];
  const auto same = [&](const auto& expression) {
    return same_bits_or_nan(evaluate(expression), evaluate(expression, off));
  };
  INFO("tokens " << x.shape()[0] << " depth " << x.shape()[1] << " experts " << n << " k " << k);
  CHECK(same(top_k(einsum<"ti,in->tn">(x, gate), k)));
  CHECK(same(top_k(relu(einsum<"ti,in->tn">(x, gate) + bias), k)));
  CHECK(same(softmax(top_k(einsum<"ti,in->tn">(x, gate), k))));
  for (const auto w : {weighting::softmax, weighting::one, weighting::relu})
    CHECK(same(top_k(relu(einsum<"ti,in->tn">(x, gate) + bias), k, w)));
  CHECK(same(top_k(einsum<"ti,in->tn">(x, gate) + bias, k, weighting::softmax)));
  for (const float size : {0.f, 0.3f, 3.f}) {  // of thresholds, some of which are below 0
    const auto threshold = random<parameter<float, 1>>({n}, 4, size);
    CHECK(same(jump_relu(relu(einsum<"ti,in->tn">(x, gate)), threshold)));
    CHECK(same(jump_relu(relu(einsum<"ti,in->tn">(x, gate) + bias), threshold)));
    CHECK(same(jump_relu(einsum<"ti,in->tn">(x, gate) + bias, threshold)));
  }
}

template <class Weights>
void check_same(const tensor<float, 2>& x, const Weights& gate, extent k) {
  check_same(x, gate, random<parameter<float, 1>>({gate.shape()[1]}, 3, 0.2f), k);
}

parameter<float, 2> normal_gate(extent i, extent n, float scale = 0.1f) {
  return random<parameter<float, 2>>({i, n}, 2, scale);
}

TEST_CASE("a screened selection has the bits of a full one", "[screen]") {
  using size = std::pair<extent, extent>;
  for (const auto& [tokens, depth] :
       {size{1, 64}, size{1, 513}, size{3, 65}, size{3, 300}, size{6, 95}, size{6, 513},
        size{7, 64}, size{7, 300}, size{40, 65}, size{130, 95}})
    check_same(random<tensor<float, 2>>({tokens, depth}, 1), normal_gate(depth, 1100), 5);
  check_same(random<tensor<float, 2>>({9, 384}, 1), normal_gate(384, 3000), 32);
  check_same(random<tensor<float, 2>>({9, 200}, 1), normal_gate(200, 3000), 1);
}

TEST_CASE("what is above thresholds is screened behind a ReLU alone", "[screen]") {
  const auto x = random<tensor<float, 2>>({4, 64}, 1);
  const auto gate = normal_gate(64, 1100);
  const auto threshold = random<parameter<float, 1>>({1100}, 4);
  const auto is_screened = [](const auto& expression) {
    return explain(expression).text.find("all but 0 of 1100, scores in 16 bits") !=
           std::string::npos;
  };
  const auto scores = einsum<"ti,in->tn">(x, gate);
  CHECK(is_screened(jump_relu(relu(scores), threshold)));
  CHECK_FALSE(
      is_screened(jump_relu(scores, threshold)));    // a number below 0 may be above a threshold
  CHECK_FALSE(is_screened(nonzeros(relu(scores))));  // of which most are kept
}

TEST_CASE("a layer that keeps fewer entries keeps all that is above thresholds", "[screen]") {
  const auto x = random<tensor<float, 2>>({4, 64}, 1);
  const auto gate = normal_gate(64, 1100);
  const auto threshold = random<parameter<float, 1>>({1100}, 4);
  auto forward = compile(
      [&](const auto& rows) {
        const auto scores = einsum<"ti,in->tn">(rows, gate);
        return std::tuple(jump_relu(relu(scores), threshold), top_k(rows, 9));
      },
      4);
  const auto before = std::get<0>(forward(x));
  forward.keep(2);
  CHECK(same_bits_or_nan(std::get<0>(forward(x)), before));
}

TEST_CASE("parameters of 16 bits are screened, too", "[screen]") {
  const auto wide = normal_gate(100, 1500);
  parameter<bf16, 2> narrow(tensor<bf16, 2>({100, 1500}));
  for (extent i = 0; i < wide.size(); ++i) narrow.data()[i] = bf16(wide.data()[i]);
  check_same(random<tensor<float, 2>>({5, 100}, 1), narrow, 9);
}

TEST_CASE("ties, equal scores and rows of few positive scores are selected as without screening",
          "[screen]") {
  const extent depth = 80, n = 1600;
  auto x = random<tensor<float, 2>>({6, depth}, 1);
  auto gate = normal_gate(depth, n);
  for (extent i = 0; i < depth; ++i)
    for (extent e = 0; e < n; ++e) gate(i, e) = gate(i, e % 40);  // each score forty times
  check_same(x, gate, 7);
  for (extent i = 0; i < gate.size(); ++i) gate.data()[i] = std::round(gate.data()[i] * 20);
  for (extent i = 0; i < x.size(); ++i) x.data()[i] = std::round(x.data()[i] * 3);
  check_same(x, gate, 7);
  std::fill_n(gate.data(), gate.size(), 0.5f);
  check_same(x, gate, 7);
  std::fill_n(x.data(), x.size(), 0.f);
  check_same(x, gate, 7);
  for (extent i = 0; i < x.size(); ++i) x.data()[i] = 1;
  for (extent i = 0; i < depth; ++i)
    for (extent e = 0; e < n; ++e) gate(i, e) = e % 400 == 3 ? 1.f : -1.f;  // four of them
  check_same(x, gate, 7);
}

TEST_CASE("outliers, huge and tiny numbers are selected as without screening", "[screen]") {
  const extent depth = 90, n = 1300;
  for (const float scale : {1e-42f, 1e-30f, 1e10f, 1e20f, 3e38f})
    for (const float weight : {1e-40f, 1.f, 1e19f, 1e30f}) {
      INFO("scales " << scale << ' ' << weight);
      check_same(random<tensor<float, 2>>({3, depth}, 1, scale), normal_gate(depth, n, weight), 6);
    }
  auto x = random<tensor<float, 2>>({8, depth}, 1);
  auto gate = normal_gate(depth, n);
  for (extent t = 0; t < 8; ++t) x(t, t) = 1e4f;  // one coordinate carries the norm
  check_same(x, gate, 6);
  for (extent e = 0; e < n; e += 3)
    for (extent i = 0; i < depth; ++i) gate(i, e) *= static_cast<float>(1 + e * e);  // norms apart
  check_same(x, gate, 6);
}

// Rows are narrowed to integers by a scale of |v| / 45000, raised a little (kernels/narrow.hpp).
constexpr double steps_of_a_norm = 45000 / (1 + 0x1p-20);

// Returns the length that a number besides gives a row of `count` ones, so that a 1 is this many
// steps.
double length_beside(extent count, double steps) {
  return std::sqrt(std::pow(steps_of_a_norm / steps, 2) - static_cast<double>(count));
}

// A square number of equal numbers is narrowed almost exactly, and so are the rows or columns of
// the next tests that hold nothing else. If all roundings go in one direction, the error is as
// large as Cauchy and Schwarz allow, and a bound of half the size would lose the winners.
TEST_CASE("columns that round down win against columns that round up", "[screen]") {
  const extent ones = 225, n = 1200;
  parameter<float, 2> gate(std::array<extent, 2>{ones + 1, n});
  for (extent e = 0; e < n; ++e) {
    const bool winner = e % 300 == 7, loser = e % 30 == 1;
    const double value = winner ? 1 + 0.2 / 2998 : loser ? 1 : 0.1;
    for (extent i = 0; i < ones; ++i) gate(i, e) = static_cast<float>(value);
    const double beside = length_beside(ones, winner ? 2998.49 : 2998.51);  // x has a 0 there
    gate(ones, e) = winner || loser ? static_cast<float>(value * beside) : 0.f;
  }
  tensor<float, 2> x({5, ones + 1});
  for (extent t = 0; t < 5; ++t)
    for (extent i = 0; i < ones; ++i) x(t, i) = static_cast<float>(t + 1);
  check_same(x, gate, 4);
  check_same(x, gate, 9);
}

TEST_CASE("columns that meet what rounds down in x win against those that meet what rounds up",
          "[screen]") {
  const extent ones = 36, others = 4, n = 1200;
  const double down = 2000.49, up = 2000.51;  // steps
  tensor<float, 2> x({5, 2 * ones + others});
  parameter<float, 2> gate(std::array<extent, 2>{2 * ones + others, n});
  const double besides =
      std::pow(steps_of_a_norm / up, 2) - static_cast<double>(ones) * (1 + std::pow(down / up, 2));
  for (extent t = 0; t < 5; ++t) {
    for (extent i = 0; i < ones; ++i) {
      x(t, i) = static_cast<float>(down / up);
      x(t, ones + i) = 1;
    }
    for (extent i = 0; i < others; ++i)
      x(t, 2 * ones + i) = static_cast<float>(std::sqrt(besides / others));
  }
  for (extent e = 0; e < n; ++e) {
    const bool winner = e % 300 == 7, loser = e % 30 == 1;
    const auto weight = static_cast<float>(loser ? (down - 0.02) / up : winner ? 1 : 0.1);
    for (extent i = 0; i < ones; ++i) gate(loser ? ones + i : i, e) = weight;
  }
  check_same(x, gate, 4);
  check_same(x, gate, 9);
}

parameter<float, 1> biases(extent n, float value) {
  parameter<float, 1> b(std::array<extent, 1>{n});
  std::fill_n(b.data(), n, value);
  return b;
}

TEST_CASE("infinite biases mask and force experts as without screening", "[screen]") {
  const extent depth = 70, n = 1200;
  auto x = random<tensor<float, 2>>({4, depth}, 1);
  auto gate = normal_gate(depth, n);
  auto bias = biases(n, -infinity);
  for (const extent e : std::initializer_list<extent>{5, 700, 1199}) bias(e) = 0.1f;
  check_same(x, gate, bias, 7);
  bias = biases(n, -3);  // hardly a score is positive
  check_same(x, gate, bias, 7);
  bias = biases(n, 0);
  for (extent e = 0; e < n; e += 20) bias(e) = infinity;
  for (extent i = 0; i < depth; ++i) {
    gate(i, 1000) = i % 2 ? -3e38f : 3e38f;
    gate(i, 30) = 3e38f;
    x(0, i) = 1.001f;
    x(1, i) = -1.001f;
  }
  check_same(x, gate, bias, 7);
}

TEST_CASE("norms below the least normal number are not rounded away", "[screen]") {
  const extent depth = 64, n = 1200;
  for (const bool swapped : {false, true}) {
    const float tiny = swapped ? 0x1p60f : 0x1p-149f, huge = swapped ? 0x1p-149f : 0x1p60f;
    tensor<float, 2> x({2, depth});
    parameter<float, 2> gate(std::array<extent, 2>{depth, n});
    for (extent t = 0; t < 2; ++t) x(t, 0) = x(t, 1) = tiny;
    for (extent e = 0; e < n; ++e) gate(0, e) = gate(1, e) = e % 9 == 4 ? huge : 0.f;
    auto bias = biases(n, 0);
    for (extent e = 0; e < n; ++e) bias(e) = e % 9 == 4 ? 0.f : 0.9f * 0x1p-88f;
    check_same(x, gate, bias, 7);
  }
}

TEST_CASE("NaN and infinity on either side are selected as without screening", "[screen]") {
  const extent depth = 70, n = 1200;
  auto x = random<tensor<float, 2>>({7, depth}, 1);
  auto gate = normal_gate(depth, n);
  x(1, 5) = nan;
  x(2, 0) = infinity;
  x(3, 1) = -infinity;
  x(3, 2) = infinity;
  check_same(x, gate, 6);
  gate(3, 17) = nan;
  gate(4, 900) = infinity;
  gate(5, 901) = -infinity;
  gate(0, 1199) = nan;
  check_same(x, gate, 6);
  for (extent e = 0; e < n; e += 4) gate(8, e) = nan;
  check_same(x, gate, 6);
}

}  // namespace
