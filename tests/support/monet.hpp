// SPDX-License-Identifier: MIT
// Small Monet layers of random weights, and their output by double loops over every pair of
// experts, written from the equations.
#pragma once

#include <set>

#include <fmoe/monet.hpp>

#include "oracle.hpp"

namespace fmoe::test {

struct monet_sizes {
  extent t = 7, d = 14, p = 3, s = 9, m = 6;
};

template <class T>
monet_hd<T> random_hd(const monet_sizes& n, unsigned seed) {
  monet_hd<T> l;
  l.encoder = random<parameter<T, 2>>({n.d, n.s * n.m}, seed, 0.3f);
  l.encoder_bias = random<parameter<T, 1>>({n.s * n.m}, seed + 1, 0.5f);
  l.decoder = random<parameter<T, 2>>({n.s * n.m, n.d}, seed + 2);
  l.bias = random<parameter<T, 2>>({n.s, n.d}, seed + 3);
  return l;
}
template <class T>
monet_vd<T> random_vd(const monet_sizes& n, unsigned seed) {
  const extent h = n.s * n.m / 2, o = n.d / 2;
  monet_vd<T> l;
  for (auto* u : {&l.encoder1, &l.encoder2}) *u = random<parameter<T, 2>>({n.d, h}, seed++, 0.3f);
  for (auto* b : {&l.encoder_bias1, &l.encoder_bias2})
    *b = random<parameter<T, 1>>({h}, seed++, 0.5f);
  for (auto* v : {&l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22})
    *v = random<parameter<T, 2>>({h, o}, seed++);
  for (auto* b : {&l.bias1, &l.bias2}) *b = random<parameter<T, 2>>({n.s, o}, seed++);
  return l;
}
inline double act(pointwise f, double x) {
  if (f == pointwise::gelu) return x / 2 * std::erfc(-x / std::sqrt(2.0));
  return x > 0 ? (f == pointwise::relu ? x : x * x) : 0;
}

// Returns act(U_i x + b_i) of unit q.
template <class T, class X>
double unit(pointwise f, const X& x, extent t, const parameter<T, 2>& u, const parameter<T, 1>& b,
            extent column) {
  double sum = b.empty() ? 0 : convert<double>(b(column));
  for (extent k = 0; k < u.shape()[0]; ++k)
    sum += convert<double>(x(t, k)) * convert<double>(u(k, column));
  return act(f, sum);
}

template <class T, class X>
std::vector<double> expert(const monet_hd<T>& l, const X& x, extent t, extent i, extent j) {
  const extent s = l.bias.shape()[0], m = l.encoder.shape()[1] / s, d = l.bias.shape()[1];
  std::vector<double> y(d);
  for (extent o = 0; o < d; ++o) y[o] = convert<double>(l.bias(j, o));
  for (extent q = 0; q < m; ++q) {
    const double h = unit(l.activation, x, t, l.encoder, l.encoder_bias, i * m + q);
    for (extent o = 0; o < d; ++o) y[o] += h * convert<double>(l.decoder(j * m + q, o));
  }
  return y;
}
template <class T, class X>
std::vector<double> expert(const monet_vd<T>& l, const X& x, extent t, extent i, extent j) {
  const extent s = l.bias1.shape()[0], m = l.encoder1.shape()[1] / s, d = l.bias1.shape()[1];
  std::vector<double> y(2 * d);
  for (extent o = 0; o < d; ++o) {
    y[o] = convert<double>(l.bias1(i, o));
    y[d + o] = convert<double>(l.bias2(j, o));
  }
  for (extent q = 0; q < m; ++q) {
    const double a = unit(l.activation, x, t, l.encoder1, l.encoder_bias1, i * m + q);
    const double b = unit(l.activation, x, t, l.encoder2, l.encoder_bias2, j * m + q);
    for (extent o = 0; o < d; ++o) {
      y[o] += a * convert<double>(l.decoder11(i * m + q, o)) +
              b * convert<double>(l.decoder12(i * m + q, o));
      y[d + o] += a * convert<double>(l.decoder21(j * m + q, o)) +
                  b * convert<double>(l.decoder22(j * m + q, o));
    }
  }
  return y;
}

// Returns the sum over p and all (i, j) that are not deleted.
template <class Layer, class X, class G>
std::vector<double> output(const Layer& l, const X& x, const G& g1, const G& g2) {
  const auto [tokens, p, s] = g1.shape();
  const std::set<index_pair> gone(l.deleted.begin(), l.deleted.end());
  std::vector<double> all;
  for (extent t = 0; t < tokens; ++t) {
    std::vector<double> y;
    for (extent i = 0; i < s; ++i)
      for (extent j = 0; j < s; ++j) {
        const auto e = expert(l, x, t, i, j);
        y.resize(e.size());
        if (gone.contains({i, j})) continue;
        double weight = 0;
        for (extent h = 0; h < p; ++h)
          weight += convert<double>(g1(t, h, i)) * convert<double>(g2(t, h, j));
        for (extent o = 0; o < e.size(); ++o) y[o] += weight * e[o];
      }
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

}  // namespace fmoe::test
