// SPDX-License-Identifier: MIT
// Products, gathers, selections and functions of one number have the CPU's bits on emulated blocks,
// in any order of threads and for any split of the tokens.
#include <cmath>
#include <cstring>
#include <random>

#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/tune.hpp>

#include "../support/agree.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using cuda::thread_order;

// Kernels without a fused multiply-add, those of x86-64-v2, round products and sums apart.
const bool is_fused = [] {
  const std::string name = this_machine().name;
  return name.find("x86-64-v3") != name.npos || name.find("x86-64-v4") != name.npos;
}();

// True if the GPU, or the emulated blocks, compute what the CPU does, bit by bit but for NaN, of
// which a GPU has one.
template <operand E>
bool has_cpu_bits(const E& e, thread_order order = thread_order::shuffled) {
  const compile_options options{.on = cuda::gpu_or_emulated({.order = order})};
  return is_fused ? same_bits_or_nan(evaluate(e, options), evaluate(e)) : agrees(e, options);
}

// Numbers of all magnitudes: tiny and large ones, both zeros, infinities and NaN.
template <class T>
tensor<T, 2> extremes() {
  using limits = std::numeric_limits<T>;
  std::vector<T> all{T(0),
                     T(-0.0),
                     limits::infinity(),
                     -limits::infinity(),
                     limits::quiet_NaN(),
                     limits::min(),
                     -limits::min(),
                     limits::denorm_min(),
                     limits::max(),
                     limits::lowest(),
                     limits::epsilon()};
  std::mt19937 bits(3);
  std::uniform_real_distribution<double> exponent(-40, 11), sign(-1, 1);
  while (all.size() < 3000)
    all.push_back(static_cast<T>(std::exp2(exponent(bits)) * (sign(bits) < 0 ? -1 : 1)));
  return {{3, all.size() / 3}, std::span<const T>(all.data(), all.size() / 3 * 3)};
}

// NaN may have other bits.
template <class T>
bool same_numbers(const tensor<T, 2>& a, const tensor<T, 2>& b) {
  for (extent i = 0; i < a.size(); ++i)
    if (!std::isnan(a.data()[i]) || !std::isnan(b.data()[i]))
      if (std::memcmp(a.data() + i, b.data() + i, sizeof(T)) != 0) {
        UNSCOPED_INFO("number " << i << ": " << a.data()[i] << " and " << b.data()[i]);
        return false;
      }
  return true;
}

TEMPLATE_TEST_CASE("functions of one number have the CPU's bits", "[cuda]", float, double) {
  using T = TestType;
  const auto x = extremes<T>();
  const auto check = [&](const char* name, const auto& e) {
    INFO(name);
    if (is_fused) CHECK(same_numbers(evaluate(e, {.on = cuda::gpu_or_emulated()}), evaluate(e)));
  };
  check("relu", relu(x));
  check("gelu", gelu(x));
  check("gelu_tanh", gelu_tanh(x));
  check("silu", silu(x));
  check("sigmoid", sigmoid(x));
  check("squared_relu", squared_relu(x));
  check("exp", exp(x));
  check("sqrt", sqrt(x));
  check("tanh", tanh(x));
  // g++ joins a product and a sum of these.
  const auto usual = random<tensor<T, 2>>({3, 1000}, 5);
  CHECK(agrees(log(abs(usual) + 1e-3), {.on = cuda::gpu_or_emulated()}));
  check("abs", abs(x));
  check("negate", -x);
  check("scale", 0.3 * x);
  check("shift", x + 0.3);
  check("inverse", 0.3 / x);
  check("max", max(x, gelu(x)));
  check("quotient of two", x / (x + 1.5));
}

TEMPLATE_TEST_CASE("entmax is right for every alpha", "[cuda]", float, double) {
  const auto x = random<tensor<TestType, 2>>({3, 300}, 5);
  for (const double alpha : {1.1, 1.5, 2., 3.}) {
    INFO("alpha " << alpha);
    CHECK(agrees(entmax(x, alpha), {.on = cuda::gpu_or_emulated()}));
  }
}

TEMPLATE_TEST_CASE("products have the CPU's bits, with and without passes", "[cuda]", float,
                   double) {
  using T = TestType;
  for (const extent tokens : {extent{1}, extent{24}, extent{70}})
    for (const extent depth : {extent{1}, extent{256}, extent{257}, extent{600}}) {
      INFO(tokens << " tokens, depth " << depth);
      const extent columns = depth % 2 == 0 ? 64 : 131;
      const auto x = random<tensor<T, 2>>({tokens, depth}, 1);
      const auto w = random<parameter<T, 2>>({depth, columns}, 2);
      const auto bias = random<parameter<T, 1>>({columns}, 3);
      const auto other = random<tensor<T, 2>>({tokens, columns}, 4);
      CHECK(has_cpu_bits(einsum<"ti,io->to">(x, w)));
      CHECK(has_cpu_bits(gelu(einsum<"ti,io->to">(x, w) + bias) * other));
    }
}

TEST_CASE("blocks of a sum may have any length", "[cuda]") {
  const auto x = random<tensor<float, 2>>({9, 300}, 1);
  const auto product = einsum<"ti,io->to">(x, random<parameter<float, 2>>({300, 40}, 2));
  for (const extent block : {extent{1}, extent{10}, extent{17}, extent{1000}}) {
    INFO("blocks of " << block);
    const auto y = evaluate(product, {.on = cuda::gpu_or_emulated(), .sum_block = block});
    if (is_fused) CHECK(same_bits(y, evaluate(product, {.sum_block = block})));
  }
}

TEST_CASE("products with batches, transposed weights and small operands have the CPU's bits",
          "[cuda]") {
  const auto x = random<tensor<float, 3>>({11, 4, 30}, 1);
  const auto y = random<tensor<float, 3>>({11, 4, 9}, 2);
  CHECK(has_cpu_bits(einsum<"thi,hio->tho">(x, random<parameter<float, 3>>({4, 30, 70}, 3))));
  CHECK(has_cpu_bits(einsum<"thi,oi->tho">(x, random<parameter<float, 2>>({70, 30}, 4))));
  CHECK(has_cpu_bits(einsum<"thi,thj->tij">(x, y)));
  CHECK(has_cpu_bits(einsum<"thi->ti">(x)));
  CHECK(has_cpu_bits(einsum<"thi,thj->ij">(x, y)));
  CHECK(has_cpu_bits(einsum<"tho->oth">(y)));
}

TEST_CASE("weights of 16 and 8 bits are those of the CPU", "[cuda]") {
  const auto x = random<tensor<float, 2>>({9, 64}, 1);
  CHECK(has_cpu_bits(einsum<"ti,io->to">(x, random<parameter<bf16, 2>>({64, 40}, 2))));
  CHECK(has_cpu_bits(einsum<"ti,io->to">(x, random<parameter<f16, 2>>({64, 40}, 2))));
  const auto w = random<parameter<float, 2>>({64, 40}, 2);
  for (const auto block : {extent{0}, extent{1}}) {
    CHECK(has_cpu_bits(einsum<"ti,io->to">(x, quantized<q8>(w, block))));
    CHECK(has_cpu_bits(einsum<"ti,io->to">(x, quantized<q8c>(w, block))));
    CHECK(has_cpu_bits(einsum<"ti,io->to">(top_k(x, 9), quantized<q8>(w, block))));
    const auto wide = random<parameter<float, 2>>({64, 96}, 2);  // whole blocks along rows
    CHECK(has_cpu_bits(einsum<"ti,io->to">(top_k(x, 9), quantized<q8>(wide, block))));
    CHECK(has_cpu_bits(einsum<"ti,io->to">(top_k(x, 9), quantized<q8c>(wide, block))));
  }
  // The device holds 1 byte a weight, a float each 32 weights, and what the selection takes.
  const auto bytes = [&](const auto& table) {
    return explain(einsum<"ti,io->to">(top_k(x, 9), table), {.on = cuda::emulated()}).memory.packed;
  };
  const auto wide = random<parameter<float, 2>>({64, 96}, 2);
  CHECK(bytes(quantized<q8>(wide, 1)) == 64 * 96 + 64 * 96 / 32 * 4);
  CHECK(bytes(wide) == 64 * 96 * 4);
  CHECK(has_cpu_bits(einsum<"ti,io->to">(top_k(x, 9), random<parameter<bf16, 2>>({64, 40}, 2))));
  CHECK(has_cpu_bits(einsum<"ti,io->to">(top_k(x, 9), random<parameter<f16, 2>>({64, 40}, 2))));
}

TEST_CASE("selections have the CPU's bits", "[cuda]") {
  const auto w = random<parameter<float, 2>>({400, 33}, 9);
  for (const bool has_ties : {false, true}) {
    auto x = random<tensor<float, 2>>({5, 400}, 1);
    if (has_ties)
      for (extent i = 0; i < x.size(); ++i) x.data()[i] = std::round(2 * x.data()[i]);
    x(1, 3) = std::numeric_limits<float>::quiet_NaN();
    x(1, 9) = std::numeric_limits<float>::infinity();
    x(2, 0) = -std::numeric_limits<float>::infinity();
    for (extent i = 0; i < 400; ++i) x(3, i) = 0;
    for (const extent k : {extent{0}, extent{1}, extent{32}, extent{300}, extent{400}}) {
      INFO(k << " of 400, ties " << has_ties);
      CHECK(has_cpu_bits(top_k(x, k)));
      CHECK(has_cpu_bits(top_k(x, k, weighting::one)));
      CHECK(has_cpu_bits(top_k(x, k, weighting::relu)));
    }
    CHECK(has_cpu_bits(nonzeros(relu(x))));
    CHECK(has_cpu_bits(einsum<"tn,no->to">(top_k(x, 40), w)));
    CHECK(has_cpu_bits(expert_choice(x, x, weighting::score)));
    const auto scores = random<tensor<float, 2>>({5, 400}, 7);
    for (const extent k : {extent{0}, extent{32}, extent{300}}) {
      CHECK(has_cpu_bits(top_k(scores, x, k)));
      CHECK(has_cpu_bits(top_k(scores, x, k, weighting::relu)));
    }
    CHECK(agrees(top_k(sigmoid(scores), x, 32, weighting::normalized), {.on = cuda::emulated()}));
    CHECK(agrees(top_k(scores, x, 32, weighting::softmax), {.on = cuda::emulated()}));
    for (const auto score : {group_score::sum_of_two, group_score::greatest})
      for (const extent groups : {extent{1}, extent{8}, extent{50}})
        CHECK(has_cpu_bits(top_k(scores, best_groups(x, groups, (groups + 1) / 2, score), 5)));
    for (const extent groups : {extent{1}, extent{8}, extent{400}})
      CHECK(has_cpu_bits(top_k(scores, group_max(x, groups), groups)));
  }
}

TEST_CASE("a sparse mixer has the CPU's places, and its weights within rounding", "[cuda]") {
  for (const extent columns : {extent{2}, extent{16}, extent{1100}, extent{9000}}) {
    INFO(columns << " columns");
    auto x = random<tensor<float, 2>>({7, columns}, 1);
    for (extent n = 0; n < columns; ++n) {
      x(0, n) = std::round(2 * x(0, n));  // ties
      x(1, n) = -2 - std::abs(x(1, n));
      x(2, n) = 0;
    }
    for (const double jitter : {0., 0.2, 0.9})
      CHECK(agrees(sparse_mixer(x, jitter), {.on = cuda::emulated()}));
    x(3, 1) = std::numeric_limits<float>::quiet_NaN();
    x(4, 1) = std::numeric_limits<float>::infinity();
    for (extent n = 1; n < columns; ++n) x(5, n) = -std::numeric_limits<float>::infinity();
    const auto y = evaluate(sparse_mixer(x), {.on = cuda::emulated()});
    for (const extent t : {extent{3}, extent{4}, extent{5}})
      CHECK(std::all_of(&y(t, 0), &y(t, 0) + columns, [](float v) { return std::isnan(v); }));
    CHECK(std::isfinite(y(6, 0)));
  }
}

TEST_CASE("rows that many blocks share are selected with the CPU's bits", "[cuda]") {
  auto x = random<tensor<float, 2>>({2, 23000}, 1);
  for (extent i = 0; i < 23000; ++i) x(1, i) = std::round(x(1, i));
  CHECK(has_cpu_bits(top_k(x, 32)));
  CHECK(has_cpu_bits(einsum<"tn,no->to">(top_k(x, 5), random<parameter<float, 2>>({23000, 3}, 2))));
}

TEST_CASE("sums of two lists are selected with the CPU's bits", "[cuda]") {
  const auto x = random<tensor<double, 4>>({3, 2, 2, 90}, 1);
  for (const auto& [keep, each] : {std::pair<extent, extent>{1, 1}, {9, 5}, {40, 64}, {256, 16}}) {
    INFO(keep << " of the sums of " << each);
    CHECK(has_cpu_bits(product_top_k(x, keep, each, weighting::score)));
    CHECK(has_cpu_bits(product_top_k(x, keep, each, weighting::relu)));
  }
}

// Experts that are computed for the tokens that selected them.
template <class T>
auto experts(const tensor<T, 2>& x) {
  const auto gate = random<parameter<T, 2>>({20, 6}, 1);
  const auto first = random<parameter<T, 3>>({6, 20, 70}, 2);
  const auto bias = random<parameter<T, 2>>({6, 70}, 3);
  const auto second = random<parameter<T, 3>>({6, 70, 15}, 4);
  const auto end = random<parameter<T, 1>>({15}, 5);
  return einsum<"tn,tnh,nho->to">(top_k(einsum<"ti,in->tn">(x, gate), 2),
                                  relu(einsum<"ti,nih->tnh">(x, first) + bias), second) +
         end;
}

TEMPLATE_TEST_CASE("groups of experts have the CPU's bits", "[cuda]", float, double) {
  const auto of = [](extent tokens) {
    return experts(random<tensor<TestType, 2>>({tokens, 20}, 7));
  };
  for (const auto order :
       {thread_order::ascending, thread_order::descending, thread_order::shuffled})
    CHECK(has_cpu_bits(of(9), order));
  CHECK(has_cpu_bits(of(1)));
  CHECK(has_cpu_bits(of(150)));
}

TEST_CASE("sums over tokens and sums without pairs have the CPU's bits", "[cuda]") {
  const auto x = random<tensor<float, 2>>({300, 30}, 1), y = random<tensor<float, 2>>({300, 8}, 2);
  CHECK(has_cpu_bits(einsum<"ti,tj->ij">(x, y)));
  CHECK(has_cpu_bits(einsum<"tn,to->no">(top_k(x, 4), y)));
  CHECK(has_cpu_bits(einsum<"to,tn->on">(y, top_k(x, 4))));
  CHECK(has_cpu_bits(einsum<"tn->n">(top_k(x, 4))));
  const std::vector<index_pair> pairs{{0, 1}, {5, 7}, {29, 7}, {3, 0}};
  CHECK(has_cpu_bits(einsum<"ti,tj,ij->tj">(x, y, all_except(pairs, 30, 8))));
  const auto w = random<parameter<float, 3>>({8, 12, 30}, 3);
  CHECK(has_cpu_bits(einsum<"ti,tj,jdi,ij->td">(x, y, w, all_except(pairs, 30, 8))));
}

template <class T>
mxd<T> decoders(extent width, extent hidden, extent decoder_count, extent active) {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({width, hidden}, 1);
  l.encoder_bias = random<parameter<T, 1>>({hidden}, 2);
  l.gate = random<parameter<T, 2>>({width, decoder_count}, 3);
  l.scales = random<parameter<T, 2>>({decoder_count, width}, 4);
  l.decoder = random<parameter<T, 2>>({hidden, width}, 5);
  l.active = active;
  return l;
}

TEMPLATE_TEST_CASE("mixtures of decoders have the CPU's bits", "[cuda]", float, double) {
  const auto l = decoders<TestType>(48, 300, 1100, 9);
  for (const extent tokens : {extent{1}, extent{30}})
    for (const auto order :
         {thread_order::ascending, thread_order::descending, thread_order::shuffled})
      CHECK(has_cpu_bits(l(random<tensor<TestType, 2>>({tokens, 48}, 9)), order));
}

TEST_CASE("the workspace decides how many tokens run at a time, and no bit", "[cuda]") {
  const auto l = decoders<float>(24, 60, 500, 5);
  const auto x = random<tensor<float, 2>>({90, 24}, 9);
  const auto e = experts(random<tensor<float, 2>>({90, 20}, 7));
  const auto first = evaluate(l(x), {.on = cuda::gpu_or_emulated()});
  const auto second = evaluate(e, {.on = cuda::gpu_or_emulated()});
  for (const extent kib : {extent{20}, extent{64}}) {
    const compile_options small{.on = cuda::gpu_or_emulated({.workspace = kib << 10})};
    const std::string text = explain(l(x), small).text;
    INFO(text);
    CHECK(text.find("tile of 90 tokens") == text.npos);
    CHECK(same_bits(evaluate(l(x), small), first));
    CHECK(same_bits(evaluate(e, small), second));
  }
}

}  // namespace
