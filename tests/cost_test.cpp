// SPDX-License-Identifier: MIT
// What layers cost, against the papers' figures and closed forms.
#include <fmoe/cost.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"
#include "support/oracle.hpp"

using namespace fmoe;

namespace {

// A layer of these sizes; nothing is computed with it, so its numbers stay zero.
mxd<float> layer_of(extent i, extent h, extent n, extent o, extent k) {
  mxd<float> m;
  m.encoder = parameter<float, 2>({i, h});
  m.encoder_bias = parameter<float, 1>({h});
  m.gate = parameter<float, 2>({i, n});
  m.gate_bias = parameter<float, 1>({n});
  m.scales = parameter<float, 2>({n, o});
  m.decoder = parameter<float, 2>({h, o});
  m.bias = parameter<float, 1>({o});
  m.active = k;
  return m;
}

}  // namespace

TEST_CASE("GPT-2's MxD, SPEC section 2 and the paper's Table 2") {
  const double i = 768, h = 3072, n = 21490, o = 768, k = 32;
  const auto c = cost(layer_of(768, 3072, 21490, 768, 32)(argument<0, 2>{1}));
  CHECK(c.factorized.parameters == 37'752'562);
  CHECK(c.factorized.multiply_adds == i * h + i * n + h * o + k * o);
  CHECK(c.factorized.flops() == 2 * c.factorized.multiply_adds);
  CHECK(c.factorized.once == 0);
  CHECK(c.naive_multiply_adds == n * h * o + i * n + i * h);
  CHECK(c.naive.parameters == n * h * o + (i + 1) * n + (i + 1) * h + o);
  CHECK(c.naive.once == n * h * o);
  // One token reads every weight but the scales, of which it reads K rows; x and y.
  CHECK(c.factorized.bytes == 4 * (37'752'562 - n * o + k * o + i + o));
}

TEST_CASE("Pythia-410m's MxD") {
  const auto c = cost(layer_of(1024, 4096, 28658, 1024, 32)(argument<0, 2>{1}));
  CHECK(c.factorized.parameters == 1024.0 * 4096 + 4096 + 1024.0 * 28658 + 28658 + 28658.0 * 1024 + 4096.0 * 1024 + 1024);
}

TEST_CASE("the real MxD of shared/real has 4,331,392 parameters") {
  CHECK(cost(layer_of(384, 1536, 4096, 384, 32)(argument<0, 2>{1})).factorized.parameters == 4'331'392);
}

TEST_CASE("bytes count each weight once a call, and gathered rows at most once") {
  const auto layer = layer_of(16, 32, 64, 8, 4);
  const auto bytes = [&](extent tokens) { return cost(layer(argument<0, 2>{tokens})).factorized.bytes; };
  const double fixed = 16 * 32 + 32 + 16 * 64 + 64 + 32 * 8 + 8;
  CHECK(bytes(1) == 4 * (fixed + 4 * 8 + 16 + 8));
  CHECK(bytes(10) == 4 * (fixed + 40 * 8 + 10 * (16 + 8)));
  CHECK(bytes(1000) == 4 * (fixed + 64 * 8 + 1000 * (16 + 8)));
}

TEST_CASE("CP muMoE, Table 8: factorized, materialised and dense") {
  const extent n = 512, r = 512, i = 768, o = 768;
  const tensor<float, 2> x({1, i});
  const parameter<float, 2> g({i, n}), u1({n, r}), u2({i, r}), u3({o, r});
  const auto a = softmax(einsum<"ti,in->tn">(x, g));
  const auto c = cost(einsum<"tn,nr,ti,ir,or->to">(a, u1, x, u2, u3));
  CHECK(c.factorized.multiply_adds == 1'441'792);
  CHECK(c.naive_multiply_adds == static_cast<double>(n * i * o + i * n));
  CHECK(c.naive.parameters == static_cast<double>(n * i * o + i * n));
}

TEST_CASE("Hadamard products, sums of one operand, bias and functions are free") {
  const tensor<float, 2> x({4, 8});
  const parameter<float, 1> b({8});
  CHECK(cost(gelu(x * x + b)).factorized.multiply_adds == 0);
  CHECK(cost(einsum<"ti->t">(x)).factorized.multiply_adds == 0);
}
