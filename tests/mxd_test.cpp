// SPDX-License-Identifier: MIT
// Compares MxD and the sparse MLPs with double loops written from their equations.
#include <fmoe/mxd.hpp>

#include <cstring>
#include <numbers>

#include "support/agree.hpp"
#include "support/limits.hpp"
#include "support/mixture.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using matrix = std::vector<std::vector<double>>;

template <class T>
matrix matrix_of(const tensor<T, 2>& t) {
  matrix m(t.shape()[0], std::vector<double>(t.shape()[1]));
  for (extent i = 0; i < m.size(); ++i)
    for (extent j = 0; j < m[i].size(); ++j) m[i][j] = convert<double>(t(i, j));
  return m;
}

double act(pointwise f, double x) {
  switch (f) {
    case pointwise::relu: return x > 0 ? x : 0;
    case pointwise::gelu: return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case pointwise::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case pointwise::silu: return x / (1 + std::exp(-x));
    default: return 1 / (1 + std::exp(-x));
  }
}

// Returns x w + b.
template <class T>
matrix linear(const matrix& x, const parameter<T, 2>& w, const parameter<T, 1>& b) {
  matrix y(x.size(), std::vector<double>(w.shape()[1]));
  for (extent t = 0; t < x.size(); ++t)
    for (extent o = 0; o < y[t].size(); ++o) {
      double sum = b.empty() ? 0 : convert<double>(b(o));
      for (extent i = 0; i < x[t].size(); ++i) sum += x[t][i] * convert<double>(w(i, o));
      y[t][o] = sum;
    }
  return y;
}

// Sets all but the k greatest of each row to zero. It takes the first of the greatest entries each
// time.
void keep_greatest(matrix& a, extent k) {
  for (auto& row : a) {
    std::vector<double> kept(row.size(), 0);
    std::vector<bool> taken(row.size());
    for (extent n = 0; n < std::min<extent>(k, row.size()); ++n) {
      extent best = row.size();
      for (extent i = 0; i < row.size(); ++i)
        if (!taken[i] && (best == row.size() || row[i] > row[best])) best = i;
      taken[best] = true;
      kept[best] = row[best];
    }
    row = kept;
  }
}

template <class T>
matrix coefficients(const mxd<T>& l, const matrix& x) {
  matrix a = linear(x, l.gate, l.gate_bias);
  for (auto& row : a)
    for (double& v : row) v = v > 0 ? v : 0;
  keep_greatest(a, l.active);
  return a;
}

template <class T>
matrix hidden(const mxd<T>& l, const matrix& x) {
  matrix z = linear(x, l.encoder, l.encoder_bias);
  const matrix g = l.linear.empty() ? z : linear(x, l.linear, l.linear_bias);
  for (extent t = 0; t < z.size(); ++t)
    for (extent h = 0; h < z[t].size(); ++h)
      z[t][h] = act(l.activation, z[t][h]) * (l.linear.empty() ? 1 : g[t][h]);
  return z;
}

// y = (a C) * (z D) + b.
template <class T>
matrix output(const mxd<T>& l, const matrix& x) {
  const matrix left = linear(coefficients(l, x), l.scales, {}),
               right = linear(hidden(l, x), l.decoder, {});
  matrix y = l.skip.empty() ? matrix(x.size(), std::vector<double>(l.decoder.shape()[1]))
                            : linear(x, l.skip, {});
  for (extent t = 0; t < y.size(); ++t)
    for (extent o = 0; o < y[t].size(); ++o)
      y[t][o] += left[t][o] * right[t][o] + (l.bias.empty() ? 0 : convert<double>(l.bias(o)));
  return y;
}

template <class T>
matrix hidden(const sparse_mlp<T>& l, const matrix& x) {
  matrix centred = x;
  for (auto& row : centred)
    for (extent i = 0; i < row.size(); ++i)
      row[i] -= l.input_bias.empty() ? 0 : convert<double>(l.input_bias(i));
  matrix z = linear(centred, l.encoder, l.encoder_bias);
  for (auto& row : z)
    for (double& v : row) v = act(l.activation, v);
  keep_greatest(z, l.active);
  return z;
}

template <class T>
matrix output(const sparse_mlp<T>& l, const matrix& x) {
  matrix y = linear(hidden(l, x), l.decoder, l.bias);
  const matrix skip = l.skip.empty() ? matrix() : linear(x, l.skip, {});
  for (extent t = 0; t < y.size(); ++t)
    for (extent o = 0; o < y[t].size(); ++o)
      y[t][o] += (l.input_bias.empty() ? 0 : convert<double>(l.input_bias(o))) +
                 (skip.empty() ? 0 : skip[t][o]);
  return y;
}

template <class T>
double deviation(const tensor<T, 2>& y, const matrix& expected) {
  std::vector<double> flat;
  for (const auto& row : expected) flat.insert(flat.end(), row.begin(), row.end());
  REQUIRE(flat.size() == y.size());
  return relative_error(y.data(), flat);
}
template <class T>
constexpr double tolerance = sizeof(T) == 4 ? 2e-6 : 1e-14;

struct sizes {
  extent i = 19, h = 45, n = 70, o = 23;
};

template <class T>
mxd<T> random_mxd(unsigned seed, sizes s, extent active, bool biases = true) {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({s.i, s.h}, seed, 0.3f);
  l.gate = random<parameter<T, 2>>({s.i, s.n}, seed + 1, 0.3f);
  l.scales = random<parameter<T, 2>>({s.n, s.o}, seed + 2);
  l.decoder = random<parameter<T, 2>>({s.h, s.o}, seed + 3, 0.2f);
  l.active = active;
  if (!biases) return l;
  l.encoder_bias = random<parameter<T, 1>>({s.h}, seed + 4, 0.5f);
  l.gate_bias = random<parameter<T, 1>>({s.n}, seed + 5, 0.5f);
  l.bias = random<parameter<T, 1>>({s.o}, seed + 6);
  return l;
}

template <class T>
void make_glu(mxd<T>& l, unsigned seed, bool biased) {
  l.linear = random<parameter<T, 2>>({l.encoder.shape()[0], l.encoder.shape()[1]}, seed, 0.3f);
  if (biased) l.linear_bias = random<parameter<T, 1>>({l.encoder.shape()[1]}, seed + 1);
}

TEMPLATE_TEST_CASE("MxD is its equation, for every activation and form", "[mxd]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({14, 19}, 1);
  for (const pointwise f : {pointwise::gelu, pointwise::gelu_tanh, pointwise::silu, pointwise::relu,
                            pointwise::sigmoid})
    for (const bool biases : {true, false})
      for (const int glu : {0, 1, 2}) {
        auto layer = random_mxd<T>(10, {}, 5, biases);
        layer.activation = f;
        if (glu > 0) make_glu(layer, 20, glu == 2);
        INFO(name_of(f) << (biases ? " with" : " without") << " biases, glu " << glu);
        const auto rows = matrix_of(x);
        CHECK(deviation(evaluate(layer(x)), output(layer, rows)) <= tolerance<T>);
        CHECK(deviation(evaluate(layer.hidden(x)), hidden(layer, rows)) <= tolerance<T>);
        CHECK(deviation(evaluate(layer.coefficients(x)), coefficients(layer, rows)) <=
              tolerance<T>);
      }
}

TEMPLATE_TEST_CASE("K of 0, 1, N and all; odd sizes; a skip", "[mxd]", float, double) {
  using T = TestType;
  for (const sizes s : {sizes{}, sizes{1, 1, 1, 1}, sizes{3, 130, 257, 2}, sizes{64, 64, 64, 64}}) {
    const auto x = random<tensor<T, 2>>({9, s.i}, 1);
    for (const extent k : {extent{0}, extent{1}, s.n / 2, s.n, all}) {
      auto layer = random_mxd<T>(10, s, k);
      INFO("h " << s.h << " n " << s.n << " k " << k);
      CHECK(deviation(evaluate(layer(x)), output(layer, matrix_of(x))) <= tolerance<T>);
      layer.skip = random<parameter<T, 2>>({s.i, s.o}, 20);
      CHECK(deviation(evaluate(layer(x)), output(layer, matrix_of(x))) <= tolerance<T>);
    }
    auto layer = random_mxd<T>(10, s, s.n + 1);
    CHECK_THROWS_AS(evaluate(layer(x)), value_error);
    layer.active = 0;
    const auto y = evaluate(layer(x));
    for (extent t = 0; t < 9; ++t)
      for (extent o = 0; o < s.o; ++o) CHECK(y(t, o) == layer.bias(o));
  }
}

TEMPLATE_TEST_CASE("expert by expert: sum of a_n z W_n with W_n = D diag(c_n)", "[mxd]", float,
                   double) {
  using T = TestType;
  const auto layer = random_mxd<T>(10, {5, 7, 12, 6}, 4);
  const auto x = random<tensor<T, 2>>({8, 5}, 1);
  const matrix a = coefficients(layer, matrix_of(x)), z = hidden(layer, matrix_of(x));
  matrix y(8, std::vector<double>(6));
  for (extent t = 0; t < 8; ++t)
    for (extent o = 0; o < 6; ++o) {
      y[t][o] = layer.bias(o);
      for (extent n = 0; n < 12; ++n)
        for (extent h = 0; h < 7; ++h) {
          const double weight = static_cast<double>(layer.scales(n, o)) *
                                static_cast<double>(layer.decoder(h, o));  // W[n, h, o]
          y[t][o] += a[t][n] * z[t][h] * weight;
        }
    }
  CHECK(deviation(evaluate(layer(x)), y) <= tolerance<T>);
  CHECK(deviation(evaluate(layer(x), {.naive = true}), y) <= tolerance<T>);
}

TEMPLATE_TEST_CASE("the layers are the sums of their experts", "[mxd]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({8, 5}, 1);
  auto layer = random_mxd<T>(10, {5, 7, 12, 6}, 4);
  const auto a = evaluate(layer.coefficients(x)), z = evaluate(layer.hidden(x));
  std::vector<double> y;
  for (extent n = 0; n < 12; ++n) {
    const auto w = evaluate(layer.expert(n));
    REQUIRE(w.shape() == std::array<extent, 2>{7, 6});
    for (extent h = 0; h < 7; ++h)
      for (extent o = 0; o < 6; ++o) CHECK(w(h, o) == layer.decoder(h, o) * layer.scales(n, o));
    add_expert(y, [&](extent t) { return a(t, n); }, evaluate(einsum<"th,ho->to">(z, w)));
  }
  add_to_rows(y, layer.bias);
  CHECK(relative_error(evaluate(layer(x)).data(), y) <= tolerance<T>);
  CHECK_THROWS_AS(layer.expert(12), value_error);

  sparse_mlp<T> sparse{layer.encoder, {}, layer.decoder, {}, layer.bias, {}, 3};
  const auto units = evaluate(sparse.coefficients(x));
  std::vector<double> sum(8 * 6);
  for (extent n = 0; n < 7; ++n) {
    const auto row = evaluate(sparse.expert(n));
    REQUIRE(row.shape() == std::array<extent, 1>{6});
    for (extent i = 0; i < sum.size(); ++i)
      sum[i] += static_cast<double>(units(i / 6, n)) * static_cast<double>(row(i % 6));
  }
  add_to_rows(sum, sparse.bias);
  CHECK(relative_error(evaluate(sparse(x)).data(), sum) <= tolerance<T>);
  CHECK_THROWS_AS(sparse.expert(7), value_error);
}

TEST_CASE("of equal coefficients the lower experts win, whatever the plan", "[mxd]") {
  auto layer = random_mxd<float>(10, {4, 9, 300, 5}, 80);
  for (extent i = 0; i < 4; ++i)
    for (extent n = 0; n < 300; ++n)
      layer.gate(i, n) = static_cast<float>(n % 3);  // a third each of three values
  std::fill_n(layer.gate_bias.data(), 300, 0.f);
  const auto x = random<tensor<float, 2>>({30, 4}, 1);
  planner::plan_options limits;
  limits.shape.streamed = 1 << 10;
  limits.shape.chunk = 64;
  limits.shape.tile = 24;
  const compile_options tiny = limited<float>(limits);
  const auto a = evaluate(layer.coefficients(x)), b = evaluate(layer.coefficients(x), tiny);
  CHECK(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  CHECK(deviation(a, coefficients(layer, matrix_of(x))) <= 2e-6);
  for (extent t = 0; t < 30; ++t)
    for (extent n = 0; n < 300; ++n)
      CHECK((a(t, n) != 0) == (a(t, 2) > 0 && n % 3 == 2 && n < 240));
  const auto y = evaluate(layer(x)), z = evaluate(layer(x), tiny);
  CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
  CHECK(deviation(y, output(layer, matrix_of(x))) <= 2e-6);
}

TEMPLATE_TEST_CASE("weights of 16 bits give the bits of the same weights widened", "[mxd]", bf16,
                   f16) {
  auto wide = random_mxd<float>(10, {}, 5);
  mxd<TestType> narrow;
  narrow.active = wide.active = 5;
  const auto rounded = [](auto& p, auto& to) {
    to = std::remove_reference_t<decltype(to)>(p.shape());
    for (extent i = 0; i < p.size(); ++i) {
      to.data()[i] = convert<TestType>(p.data()[i]);
      p.data()[i] = convert<float>(to.data()[i]);
    }
  };
  rounded(wide.encoder, narrow.encoder);
  rounded(wide.encoder_bias, narrow.encoder_bias);
  rounded(wide.gate, narrow.gate);
  rounded(wide.gate_bias, narrow.gate_bias);
  rounded(wide.scales, narrow.scales);
  rounded(wide.decoder, narrow.decoder);
  rounded(wide.bias, narrow.bias);
  for (const extent tokens : {extent{1}, extent{14}}) {
    const auto x = random<tensor<float, 2>>({tokens, 19}, 1);
    const auto y = evaluate(narrow(x)), z = evaluate(wide(x));
    CHECK(deviation(y, output(narrow, matrix_of(x))) <= 2e-6);
    CHECK(std::memcmp(y.data(), z.data(), y.size() * sizeof(float)) == 0);
  }
}

template <class T>
sparse_mlp<T> random_sparse(unsigned seed, extent i, extent h, extent o, extent active,
                            pointwise f) {
  sparse_mlp<T> l;
  l.encoder = random<parameter<T, 2>>({i, h}, seed, 0.3f);
  l.decoder = random<parameter<T, 2>>({h, o}, seed + 1);
  l.active = active;
  l.activation = f;
  return l;
}

TEMPLATE_TEST_CASE("transcoders, skip transcoders and autoencoders", "[mxd]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({11, 17}, 1);
  const auto rows = matrix_of(x);
  for (const pointwise f :
       {pointwise::relu, pointwise::gelu, pointwise::gelu_tanh, pointwise::silu})
    for (const extent k : {extent{0}, extent{1}, extent{6}, extent{90}, all}) {
      INFO(name_of(f) << " k " << k);
      auto layer = random_sparse<T>(10, 17, 90, 17, k, f);
      CHECK(deviation(evaluate(layer(x)), output(layer, rows)) <= tolerance<T>);
      layer.encoder_bias = random<parameter<T, 1>>({90}, 20);
      layer.bias = random<parameter<T, 1>>({17}, 21);
      CHECK(deviation(evaluate(layer(x)), output(layer, rows)) <= tolerance<T>);
      CHECK(deviation(evaluate(layer.coefficients(x)), hidden(layer, rows)) <= tolerance<T>);
      layer.skip = random<parameter<T, 2>>({17, 17}, 22);
      CHECK(deviation(evaluate(layer(x)), output(layer, rows)) <= tolerance<T>);
      layer.skip = {};
      layer.bias = {};
      layer.input_bias = random<parameter<T, 1>>({17}, 23);
      CHECK(deviation(evaluate(layer(x)), output(layer, rows)) <= tolerance<T>);
    }
  const auto wide = random_sparse<T>(10, 17, 90, 33, 8, pointwise::relu);
  CHECK(deviation(evaluate(wide(x)), output(wide, rows)) <= tolerance<T>);
  CHECK_THROWS_AS(evaluate(random_sparse<T>(10, 17, 90, 17, 91, pointwise::relu)(x)), value_error);
}

TEST_CASE("with GELU a sparse MLP keeps negative values when there are too few others", "[mxd]") {
  const auto layer = random_sparse<float>(10, 6, 20, 4, 18, pointwise::gelu);
  const auto x = random<tensor<float, 2>>({9, 6}, 1);
  const auto z = evaluate(layer.coefficients(x));
  CHECK(std::any_of(z.data(), z.data() + z.size(), [](float v) { return v < 0; }));
  CHECK(deviation(evaluate(layer(x)), output(layer, matrix_of(x))) <= 2e-6);
}

TEST_CASE("compiled layers of the family", "[mxd]") {
  const auto x = random<tensor<float, 2>>({40, 19}, 1);
  auto layer = random_mxd<float>(10, {}, 5);
  make_glu(layer, 20, true);
  layer.skip = random<parameter<float, 2>>({19, 23}, 30);
  tensor<float, 2> y({40, 23});
  compile(layer, 40)(x, y);
  CHECK(deviation(y, output(layer, matrix_of(x))) <= 2e-6);
  auto coder = random_sparse<float>(10, 19, 60, 19, 7, pointwise::relu);
  coder.input_bias = random<parameter<float, 1>>({19}, 23);
  tensor<float, 2> z({40, 19});
  compile(coder, 40)(x, z);
  CHECK(deviation(z, output(coder, matrix_of(x))) <= 2e-6);
}

TEMPLATE_TEST_CASE("norms of what experts and units add", "[mxd]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({7, 6}, 1);
  mxd<T> layer;
  layer.encoder = random<parameter<T, 2>>({6, 10}, 2);
  layer.gate = random<parameter<T, 2>>({6, 12}, 3);
  layer.scales = random<parameter<T, 2>>({12, 5}, 4);
  layer.decoder = random<parameter<T, 2>>({10, 5}, 5);
  layer.active = 4;
  sparse_mlp<T> sparse =
      random_sparse<T>(3, 6, 20, 4, 18, pointwise::gelu);  // keeps negative values, too
  const auto added = evaluate(layer.contribution_norms(x)),
             by_unit = evaluate(sparse.contribution_norms(x));
  const matrix a = coefficients(layer, matrix_of(x)), z = hidden(layer, matrix_of(x)),
               units = hidden(sparse, matrix_of(x));
  for (extent t = 0; t < 7; ++t) {
    for (extent n = 0; n < 12; ++n) {
      double sum = 0;
      for (extent o = 0; o < 5; ++o) {
        double y = 0;
        for (extent h = 0; h < 10; ++h) y += z[t][h] * convert<double>(layer.decoder(h, o));
        sum += y * y * convert<double>(layer.scales(n, o)) * convert<double>(layer.scales(n, o));
      }
      CHECK(std::abs(convert<double>(added(t, n)) - a[t][n] * std::sqrt(sum)) <= 1e-4);
    }
    for (extent h = 0; h < 20; ++h) {
      double sum = 0;
      for (extent o = 0; o < 4; ++o)
        sum += convert<double>(sparse.decoder(h, o)) * convert<double>(sparse.decoder(h, o));
      CHECK(std::abs(convert<double>(by_unit(t, h)) - std::abs(units[t][h]) * std::sqrt(sum)) <=
            1e-4);
    }
  }
}

}  // namespace
