// SPDX-License-Identifier: MIT
// MxD and the sparse MLPs against SPEC's definitions in plain loops of double, and MxD expert by expert.
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"
#include "support/oracle.hpp"

using namespace fmoe;
using fmoe::test::random;

namespace {

constexpr extent T = 6, I = 13, H = 19, N = 37, O = 11;
using matrix = parameter<float, 2>;
using vector = parameter<float, 1>;

double act(pointwise f, double x) {
  switch (f) {
    case pointwise::relu: return x < 0 ? 0 : x;
    case pointwise::gelu: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case pointwise::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case pointwise::silu: return x / (1 + std::exp(-x));
    default: return 1 / (1 + std::exp(-x));
  }
}

// x W + b for one row; an empty bias is none.
std::vector<double> linear(const std::vector<double>& x, const tensor<float, 2>& w, const tensor<float, 1>& b) {
  std::vector<double> y(w.shape()[1]);
  for (extent j = 0; j < y.size(); ++j) {
    y[j] = b.empty() ? 0.0 : static_cast<double>(b(j));
    for (extent i = 0; i < x.size(); ++i) y[j] += x[i] * static_cast<double>(w(i, j));
  }
  return y;
}

// The k largest of each row, the lower index first among equals; the rest is zero.
void keep(std::vector<double>& x, extent k) {
  if (k == all) return;
  std::vector<extent> order(x.size());
  std::iota(order.begin(), order.end(), extent{0});
  std::ranges::stable_sort(order, [&](extent a, extent b) { return x[a] > x[b]; });
  for (extent i = k; i < x.size(); ++i) x[order[i]] = 0;
}

std::vector<double> row(const tensor<float, 2>& x, extent t) {
  return {x.data() + t * x.shape()[1], x.data() + (t + 1) * x.shape()[1]};
}

std::vector<double> coefficients(const mxd<float>& m, const std::vector<double>& x) {
  auto a = linear(x, m.gate, m.gate_bias);
  for (double& v : a) v = std::max(v, 0.0);
  keep(a, m.active);
  return a;
}

std::vector<double> hidden(const mxd<float>& m, const std::vector<double>& x) {
  auto z = linear(x, m.encoder, m.encoder_bias);
  for (double& v : z) v = act(m.activation, v);
  if (!m.linear.empty()) {
    const auto v = linear(x, m.linear, m.linear_bias);
    for (extent h = 0; h < z.size(); ++h) z[h] *= v[h];
  }
  return z;
}

// y = sum over n of a_n z^T W_n + b, each W_n[h, o] = C[n, o] D[h, o] by itself.
std::vector<double> expert_by_expert(const mxd<float>& m, const tensor<float, 2>& x) {
  std::vector<double> y;
  for (extent t = 0; t < x.shape()[0]; ++t) {
    const auto in = row(x, t), a = coefficients(m, in), z = hidden(m, in);
    const auto skipped = m.skip.empty() ? std::vector<double>(m.decoder.shape()[1]) : linear(in, m.skip, {});
    for (extent o = 0; o < m.decoder.shape()[1]; ++o) {
      double sum = skipped[o] + (m.bias.empty() ? 0.0 : static_cast<double>(m.bias(o)));
      for (extent n = 0; n < a.size(); ++n)
        for (extent h = 0; h < z.size(); ++h)
          sum += a[n] * z[h] * static_cast<double>(m.scales(n, o)) * static_cast<double>(m.decoder(h, o));
      y.push_back(sum);
    }
  }
  return y;
}

mxd<float> make(bool biases = true, bool glu = false) {
  mxd<float> m;
  m.encoder = random<matrix>({I, H}, 1, 0.5f);
  m.gate = random<matrix>({I, N}, 2);
  m.scales = random<matrix>({N, O}, 3);
  m.decoder = random<matrix>({H, O}, 4, 0.3f);
  if (glu) m.linear = random<matrix>({I, H}, 5, 0.5f);
  if (biases) {
    m.encoder_bias = random<vector>({H}, 6);
    m.gate_bias = random<vector>({N}, 7);
    m.bias = random<vector>({O}, 8);
    if (glu) m.linear_bias = random<vector>({H}, 9);
  }
  m.active = 4;
  return m;
}

const auto x = random<tensor<float, 2>>({T, I}, 10);

void check(const mxd<float>& m) {
  const auto y = evaluate(m(x));
  CHECK(test::relative_error(y.data(), expert_by_expert(m, x)) < 1e-6);
}

}  // namespace

TEST_CASE("MxD is the sum over its experts") {
  const bool biases = GENERATE(true, false), glu = GENERATE(true, false);
  mxd<float> m = make(biases, glu);
  SECTION("for every activation") {
    m.activation = GENERATE(pointwise::gelu, pointwise::gelu_tanh, pointwise::silu, pointwise::relu, pointwise::sigmoid);
    check(m);
  }
  SECTION("for any K") {
    m.active = GENERATE(extent{1}, extent{2}, extent{32}, N - 1, N, all);
    check(m);
  }
  SECTION("with a skip connection") {
    m.skip = random<matrix>({I, O}, 11);
    check(m);
  }
}

TEST_CASE("K = 0 gives the bias, K > N throws before anything runs") {
  mxd<float> m = make();
  m.active = 0;
  const auto y = evaluate(m(x));
  for (extent t = 0; t < T; ++t)
    for (extent o = 0; o < O; ++o) CHECK(y(t, o) == m.bias(o));
  m.active = N + 1;
  CHECK_THROWS_AS(evaluate(m(x)), value_error);
  CHECK_THROWS_AS(compile(m, 4), value_error);
}

TEST_CASE("of equal scores the expert of lower index is kept") {
  mxd<float> m = make(false);
  for (extent i = 0; i < I; ++i)
    for (extent n = 0; n < N; ++n) m.gate(i, n) = m.gate(i, 0);
  m.active = 5;
  const auto a = evaluate(m.coefficients(x));
  for (extent t = 0; t < T; ++t)
    for (extent n = 0; n < N; ++n) CHECK((a(t, n) > 0) == (n < 5 && a(t, 0) > 0));
  check(m);
}

TEST_CASE("hidden units and coefficients are expressions of their own") {
  const mxd<float> m = make(true, true);
  const auto z = evaluate(m.hidden(x)), a = evaluate(m.coefficients(x));
  std::vector<double> z64, a64;
  for (extent t = 0; t < T; ++t) {
    for (const double v : hidden(m, row(x, t))) z64.push_back(v);
    for (const double v : coefficients(m, row(x, t))) a64.push_back(v);
  }
  CHECK(test::relative_error(z.data(), z64) < 1e-6);
  CHECK(test::relative_error(a.data(), a64) < 1e-6);
}

TEST_CASE("the naive plan materialises the experts and agrees") {
  const mxd<float> m = make(true, true);
  plan_options naive;
  naive.naive = true;
  CHECK(test::relative_error(evaluate(m(x), naive).data(), expert_by_expert(m, x)) < 1e-6);
}

TEST_CASE("a layer in double") {
  const mxd<float> f = make();
  mxd<double> m;
  const auto widen = [](const auto& from, auto& to) {
    to = std::remove_cvref_t<decltype(to)>(from.shape());
    for (extent i = 0; i < from.size(); ++i) to.data()[i] = static_cast<double>(from.data()[i]);
  };
  widen(f.encoder, m.encoder);
  widen(f.encoder_bias, m.encoder_bias);
  widen(f.gate, m.gate);
  widen(f.gate_bias, m.gate_bias);
  widen(f.scales, m.scales);
  widen(f.decoder, m.decoder);
  widen(f.bias, m.bias);
  m.active = f.active;
  tensor<double, 2> y({T, O});
  compile(m, T)(x, y);
  CHECK(test::relative_error(y.data(), expert_by_expert(f, x)) < 1e-13);
}

TEST_CASE("sparse MLPs: transcoder, skip transcoder, autoencoder") {
  sparse_mlp<float> m;
  const extent out = GENERATE(O, I);
  m.encoder = random<matrix>({I, H}, 1);
  m.encoder_bias = random<vector>({H}, 2);
  m.decoder = random<matrix>({H, out}, 3);
  m.active = GENERATE(extent{0}, extent{1}, extent{4}, H, all);
  m.activation = GENERATE(pointwise::relu, pointwise::gelu);  // a negative GELU can be kept, and counts
  SECTION("transcoder") { m.bias = random<vector>({out}, 4); }
  SECTION("without any bias") { m.encoder_bias = {}; }
  SECTION("skip transcoder") { m.skip = random<matrix>({I, out}, 5); }
  if (out == I) {
    SECTION("autoencoder") { m.input_bias = random<vector>({I}, 6); }
  }
  std::vector<double> expected;
  for (extent t = 0; t < T; ++t) {
    auto in = row(x, t);
    const auto raw = in;
    for (extent i = 0; i < I && !m.input_bias.empty(); ++i) in[i] -= static_cast<double>(m.input_bias(i));
    auto z = linear(in, m.encoder, m.encoder_bias);
    for (double& v : z) v = act(m.activation, v);
    keep(z, m.active);
    auto y = linear(z, m.decoder, m.bias);
    const auto skipped = m.skip.empty() ? std::vector<double>(out) : linear(raw, m.skip, {});
    for (extent o = 0; o < out; ++o)
      expected.push_back(y[o] + skipped[o] + (m.input_bias.empty() ? 0.0 : static_cast<double>(m.input_bias(o))));
  }
  CHECK(test::relative_error(evaluate(m(x)).data(), expected) < 1e-6);
}
