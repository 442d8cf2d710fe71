// SPDX-License-Identifier: MIT
// A selection that tensor cores screen has the bits of a selection from all scores, whatever the
// numbers are and however tensor cores add up.
#include <cmath>
#include <limits>

#include <fmoe/backend/cuda/select_steps.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>

#include "../support/agree.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using cuda::math;

constexpr float infinity = std::numeric_limits<float>::infinity(),
                nan = std::numeric_limits<float>::quiet_NaN();

// A plan is screened whatever it costs if its shape is given.
compile_options with(bool screen, cuda::tensor_sums sums = cuda::tensor_sums::cut_off) {
  return {.on = cuda::gpu_or_emulated(
              {.math = math::exact, .order = cuda::thread_order::shuffled, .tensor_sums = sums}),
          .screen = screen,
          .shape = plan_shape{}};
}

template <operand E>
bool same(const E& e) {
  const auto plain = evaluate(e, with(false));
  return explain(e, with(true)).text.find("screened") != std::string::npos &&
         same_bits(evaluate(e, with(true)), plain) &&
         same_bits(evaluate(e, with(true, cuda::tensor_sums::rounded)), plain);
}

void check_same(const tensor<float, 2>& x, const parameter<float, 2>& gate, extent k,
                bool all_weights = false) {
  const auto bias = random<parameter<float, 1>>({gate.shape()[1]}, 3, 0.2f);
  const auto scores = einsum<"ti,in->tn">(x, gate);
  CHECK(same(top_k(scores, k)));
  CHECK(same(top_k(relu(scores + bias), k)));
  if (!all_weights) return;
  for (const auto w : {weighting::softmax, weighting::one, weighting::relu})
    CHECK(same(top_k(relu(scores + bias), k, w)));
}

parameter<float, 2> normal_gate(extent i, extent n, float scale = 0.1f) {
  return random<parameter<float, 2>>({i, n}, 2, scale);
}

constexpr extent depth = 64, columns = 1024;

TEST_CASE("a screened selection has the bits of a full one", "[cuda][screen]") {
  check_same(random<tensor<float, 2>>({3, depth}, 1), normal_gate(depth, columns), 5, true);
  check_same(random<tensor<float, 2>>({2, 301}, 1), normal_gate(301, 1100), 9);
}

// A row has three parts of 1,024 columns or fewer; many rows have one of 4,096 or fewer.
TEST_CASE("parts of a row are screened by different blocks of threads", "[cuda][screen]") {
  const auto gate = normal_gate(depth, 2300);
  auto x = random<tensor<float, 2>>({180, depth}, 1);
  for (extent i = 0; i < depth; ++i) x(2, i) *= 0x1p100f;  // not usual
  CHECK(same(top_k(einsum<"ti,in->tn">(x, gate), 20)));
  check_same(random<tensor<float, 2>>({2, depth}, 4), gate, 20, true);
  for (const extent first : {extent{0}, extent{2048}}) {  // a part has too many candidates
    auto sloped = gate;
    for (extent e = 0; e < 2300; ++e)
      for (extent i = 0; i < depth; ++i) sloped(i, e) = e / 1024 == first / 1024 ? 1.f : 0.01f;
    check_same(random<tensor<float, 2>>({1, depth}, 4), sloped, 20);
  }
}

// One block of threads finds the candidates of all parts of a row.
TEST_CASE("rows for all multiprocessors are screened by a block each", "[cuda][screen]") {
  constexpr extent tokens = cuda::many_rows, few = 4, parts_of_two = 4100;
  const auto x = random<tensor<float, 2>>({tokens, few}, 1);
  auto gate = normal_gate(few, parts_of_two);
  for (extent i = 0; i < few; ++i) gate(i, parts_of_two - 1) = 9;  // in the second part
  const auto best = top_k(einsum<"ti,in->tn">(x, gate), 3);
  CHECK(same_bits(evaluate(best, with(true)), evaluate(best, with(false))));
}

TEST_CASE("more than 256 entries are selected by digits of their bounds", "[cuda][screen]") {
  const tensor<float, 2> x = random<tensor<float, 2>>({1, depth}, 1);
  CHECK(same(top_k(einsum<"ti,in->tn">(x, normal_gate(depth, 300 * 64)), 300)));
}

TEST_CASE("weights of 16 bits are screened as they are", "[cuda][screen]") {
  const auto x = random<tensor<float, 2>>({3, depth}, 1);
  const auto check = [&](const auto& gate) {
    CHECK(same(top_k(relu(einsum<"ti,in->tn">(x, gate)), 5)));
    CHECK(evaluate(top_k(einsum<"ti,in->tn">(x, gate), 5), with(true)).size() == 3 * columns);
  };
  check(random<parameter<bf16, 2>>({depth, columns}, 2));
  check(random<parameter<f16, 2>>({depth, columns}, 2));
  const auto packed = [&](const auto& gate) {
    return explain(top_k(einsum<"ti,in->tn">(x, gate), 5), with(true)).memory.packed;
  };
  constexpr extent bounds = 2 * 4 * columns, positions = 24;
  CHECK(packed(normal_gate(depth, columns)) == 6 * depth * columns + bounds + positions);
  CHECK(packed(random<parameter<bf16, 2>>({depth, columns}, 2)) ==
        4 * depth * columns + bounds + positions);
}

TEST_CASE("ties and rows of few positive scores are selected as without screening",
          "[cuda][screen]") {
  auto x = random<tensor<float, 2>>({2, depth}, 1);
  auto gate = normal_gate(depth, columns);
  for (extent i = 0; i < depth; ++i)
    for (extent e = 0; e < columns; ++e) gate(i, e) = gate(i, e % 40);  // each score many times
  check_same(x, gate, 7);
  std::fill_n(gate.data(), gate.size(), 0.5f);  // more candidates than there is room for
  check_same(x, gate, 7);
  for (extent i = 0; i < x.size(); ++i) x.data()[i] = 1;
  for (extent i = 0; i < depth; ++i)
    for (extent e = 0; e < columns; ++e) gate(i, e) = e % 400 == 3 ? 1.f : -1.f;  // three of them
  check_same(x, gate, 7, true);
}

TEST_CASE("outliers, subnormal and huge numbers are selected as without screening",
          "[cuda][screen]") {
  for (const auto& [scale, weight] :
       {std::pair(1e-42f, 1.f), {1.f, 1e-40f}, {1e-20f, 1e-20f}, {1e10f, 1e30f}, {3e38f, 1e-3f}}) {
    INFO("scales " << scale << ' ' << weight);
    check_same(random<tensor<float, 2>>({1, depth}, 1, scale), normal_gate(depth, columns, weight),
               6);
  }
  auto x = random<tensor<float, 2>>({2, depth}, 1);
  auto gate = normal_gate(depth, columns);
  for (extent t = 0; t < 2; ++t) x(t, t) = 1e4f;  // one coordinate carries the norm
  for (extent e = 0; e < columns; e += 3)
    for (extent i = 0; i < depth; ++i) gate(i, e) *= static_cast<float>(1 + e * e);  // norms apart
  check_same(x, gate, 6);
}

TEST_CASE("NaN and infinities on either side are selected as without screening", "[cuda][screen]") {
  auto x = random<tensor<float, 2>>({4, depth}, 1);
  auto gate = normal_gate(depth, columns);
  x(1, 3) = nan;
  x(2, 5) = infinity;
  x(3, 5) = -infinity;
  check_same(x, gate, 5);
  gate(7, 100) = nan;
  gate(8, 101) = infinity;
  gate(9, 102) = -infinity;
  check_same(x, gate, 5);
  auto bias = random<parameter<float, 1>>({columns}, 3);
  bias(5) = nan;
  bias(6) = infinity;
  bias(100) = -infinity;
  CHECK(same(top_k(einsum<"ti,in->tn">(x, gate) + bias, 5)));
}

// bf16 has 8 bits: 1 + 127/32768 is rounded to 1, and 1 + 129/32768 to 1 + 1/128. Winners lose and
// losers gain in all their numbers alike, so that the error is as large as its bound allows.
TEST_CASE("columns that round down win against columns that round up", "[cuda][screen]") {
  for (const float scale : {1.f, 0x1p70f}) {  // such columns are not usual
    parameter<float, 2> gate(std::array<extent, 2>{depth, columns});
    tensor<float, 2> x({2, depth});
    std::fill_n(x.data(), x.size(), 1.f);
    for (extent e = 0; e < columns; ++e)
      for (extent i = 0; i < depth; ++i) {
        const bool winner = e % 300 == 7, loser = e % 30 == 1;
        gate(i, e) = scale * (winner          ? 1 + 127 * 0x1p-15f
                              : !loser        ? 0.1f
                              : i < depth / 2 ? 1 + 129 * 0x1p-15f
                                              : 1 - 0x1p-8f);
      }
    check_same(x, gate, 3);
    check_same(x, gate, 9);
  }
}

// All numbers are those of bf16, so nothing errs but sums: tensor cores lose 18 units, 2^-23, in
// each small product of 16 terms, and a sum in float none. Winners lose, and losers, whose products
// are negative, gain.
// All weights are numbers of bf16, so that rounding x alone is wrong.
TEST_CASE("a column whose x rounds down wins against one whose x rounds up", "[cuda][screen]") {
  tensor<float, 2> x({1, depth});
  parameter<float, 2> gate({depth, columns});
  for (extent i = 0; i < depth; ++i) {
    const bool is_low = i < depth / 2;
    x(0, i) = is_low ? 1.003f : 1.9962f;  // 1 and 2 in bf16
    gate(i, 7) = is_low ? 255.f / 256 : 0.f;
    gate(i, 900) = is_low ? 0.f : 0.5f;
  }
  const auto scores = einsum<"ti,in->tn">(x, gate);
  CHECK(evaluate(top_k(scores, 1), with(true))(0, 7) > 0);
  CHECK(same(top_k(scores, 1)));
}

// A part of two columns has room for one.
TEST_CASE("the last columns may all be candidates", "[cuda][screen]") {
  auto gate = normal_gate(depth, columns + 2);
  for (extent i = 0; i < depth; ++i) gate(i, columns) = gate(i, columns + 1) = 1.f;
  tensor<float, 2> x({1, depth});
  for (extent i = 0; i < depth; ++i) x(0, i) = 1.003f;
  CHECK(same(top_k(einsum<"ti,in->tn">(x, gate), 2)));
}

TEST_CASE("columns that lose in sums of tensor cores win against columns that gain",
          "[cuda][screen]") {
  constexpr extent long_depth = 256;
  constexpr float great = 1 + 0x1p-7f, unit = 0x1p-23f;
  tensor<float, 2> x({1, long_depth});
  parameter<float, 2> gate(std::array<extent, 2>{long_depth, columns});
  parameter<float, 1> bias(std::array<extent, 1>{columns});
  for (extent e = 0; e < columns; ++e) {
    const bool wins = e % 300 == 7, loses = e % 100 == 1;
    const float sign = wins ? 1.f : loses ? -1.f : 0.f;
    for (extent i = 0; i < long_depth; ++i) gate(i, e) = sign * (i == 0 ? great : 0x1p-12f);
    bias(e) = loses ? 2 * great + 1010 * unit : 0.f;
  }
  for (extent i = 0; i < long_depth; ++i) x(0, i) = i == 0 ? 1.f : 253 * 0x1p-18f;
  const auto selected = top_k(einsum<"ti,in->tn">(x, gate) + bias, 3);
  CHECK(same(selected));
  CHECK(same_bits(evaluate(selected, with(true, cuda::tensor_sums::worst)),
                  evaluate(selected, with(false))));
}

// Zeros fill the k greatest, and are left out; what is a little below 0 is not selected for them.
TEST_CASE("scores below zeros that are left out are not selected", "[cuda][screen]") {
  parameter<float, 2> gate(std::array<extent, 2>{depth, columns});
  parameter<float, 1> bias(std::array<extent, 1>{columns});
  tensor<float, 2> x({1, depth});
  std::fill_n(x.data(), x.size(), 1.f);
  for (extent e = 0; e < columns; ++e) {
    const bool is_near = e == 5;
    for (extent i = 0; i < depth; ++i) gate(i, e) = is_near ? 0.1f : -1.f;
    bias(e) = is_near ? -0.1f * depth * (1 + 0x1p-16f) : e % 3 == 0 ? 0.f : -1.f;
  }
  CHECK(same(top_k(relu(einsum<"ti,in->tn">(x, gate)) + bias, 7)));
}

TEST_CASE("the roofline decides, and screening can be switched off", "[cuda][screen]") {
  const auto text = [](extent tokens, math how, bool screen) {
    const tensor<float, 2> x({tokens, 256});
    return explain(
               top_k(einsum<"ti,in->tn">(x, parameter<float, 2>(tensor<float, 2>({256, 8192}))), 8),
               {.on = cuda::gpu_or_emulated({.math = how}), .screen = screen, .as = cuda::h100()})
        .text;
  };
  const auto is_screened = [](const std::string& t) { return t.find("screened") != t.npos; };
  CHECK(is_screened(text(4096, math::exact, true)));
  CHECK(is_screened(text(4096, math::bf16, true)));
  CHECK(!is_screened(text(4096, math::exact, false)));
  CHECK(!is_screened(text(1, math::exact, true)));
}

}  // namespace
