// SPDX-License-Identifier: MIT
// Small Monet layers and routers of random weights, and their output by double loops over every
// pair of experts, written from the equations.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
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

template <class T>
monet_router<T> random_router(const monet_sizes& n, unsigned seed, extent active, bool released) {
  monet_router<T> r;
  r.keys1 = random<parameter<T, 2>>({n.d, n.p * n.s}, seed);
  r.keys2 = random<parameter<T, 2>>({n.d, n.p * n.s}, seed + 1);
  r.heads = n.p;
  r.active = active;
  if (!released) return r;
  r.heads = 0;
  for (auto* v : {&r.mean1, &r.mean2}) *v = random<parameter<T, 1>>({n.p}, seed += 2);
  for (auto* v : {&r.variance1, &r.variance2}) {
    *v = random<parameter<T, 1>>({n.p}, seed += 2, 4);
    for (extent k = 0; k < n.p; ++k) v->data()[k] = std::abs(v->data()[k]);
  }
  return r;
}

// One side of a router, from the equations: it keeps the scores with c >= min(max c, sigma), or the
// k largest, and takes the softmax over them.
template <class T>
std::vector<double> routing_of(const tensor<T, 2>& x, const parameter<T, 2>& keys,
                               const parameter<T, 1>& mean, const parameter<T, 1>& variance,
                               extent p, extent k, double sigma) {
  const extent s = keys.shape()[1] / p;
  std::vector<double> all;
  for (extent t = 0; t < x.shape()[0]; ++t)
    for (extent h = 0; h < p; ++h) {
      std::vector<double> score(s), c(s);
      for (extent i = 0; i < s; ++i) {
        for (extent d = 0; d < x.shape()[1]; ++d)
          score[i] += convert<double>(x(t, d)) * convert<double>(keys(d, h * s + i));
        if (!mean.empty())
          c[i] = (score[i] - convert<double>(mean(h))) /
                 std::sqrt(convert<double>(variance(h)) + 1e-5);
      }
      std::vector<bool> kept(s);
      const double most = *std::ranges::max_element(c);
      for (extent i = 0; i < s; ++i) {
        extent before = 0;  // in the order of a top-k
        for (extent j = 0; j < s; ++j)
          before += score[j] > score[i] || (score[j] == score[i] && j < i);
        kept[i] = mean.empty() ? before < k : c[i] >= std::min(most, sigma);
      }
      double top = -std::numeric_limits<double>::infinity(), sum = 0;
      for (extent i = 0; i < s; ++i)
        if (kept[i]) top = std::max(top, score[i]);
      for (extent i = 0; i < s; ++i) sum += kept[i] ? std::exp(score[i] - top) : 0;
      for (extent i = 0; i < s; ++i) all.push_back(kept[i] ? std::exp(score[i] - top) / sum : 0);
    }
  return all;
}

inline double act(pointwise f, double x) {
  if (f == pointwise::gelu) return x / 2 * std::erfc(-x / std::sqrt(2.0));
  return x > 0 ? (f == pointwise::relu ? x : x * x) : 0;
}

// Returns act(U x + b) of every unit.
template <class T, class X>
std::vector<double> units(pointwise f, const X& x, extent t, const parameter<T, 2>& u,
                          const parameter<T, 1>& b) {
  const auto [d, count] = u.shape();
  std::vector<double> h(count);
  for (extent q = 0; q < count; ++q) {
    double sum = b.empty() ? 0 : convert<double>(b.data()[q]);
    for (extent k = 0; k < d; ++k)
      sum += convert<double>(x.data()[t * d + k]) * convert<double>(u.data()[k * count + q]);
    h[q] = act(f, sum);
  }
  return h;
}

// Adds h times a row of V.
template <class T>
void add_row(double* y, double h, const parameter<T, 2>& v, extent row) {
  const extent d = v.shape()[1];
  for (extent o = 0; o < d; ++o) y[o] += h * convert<double>(v.data()[row * d + o]);
}

// The experts' outputs for token t, by their numbers.
template <class T>
struct hd_experts {
  const monet_hd<T>& l;
  std::vector<double> h;

  hd_experts(const monet_hd<T>& layer, const auto& x, extent t)
      : l(layer),
        h(units(l.activation, x, t, l.encoder, l.encoder_bias)) {}

  std::vector<double> operator()(extent i, extent j) const {
    const extent m = h.size() / l.bias.shape()[0];
    std::vector<double> y(l.bias.shape()[1]);
    add_row(y.data(), 1, l.bias, j);
    for (extent q = 0; q < m; ++q) add_row(y.data(), h[i * m + q], l.decoder, j * m + q);
    return y;
  }
};
template <class T>
struct vd_experts {
  const monet_vd<T>& l;
  std::vector<double> a, b;

  vd_experts(const monet_vd<T>& layer, const auto& x, extent t)
      : l(layer),
        a(units(l.activation, x, t, l.encoder1, l.encoder_bias1)),
        b(units(l.activation, x, t, l.encoder2, l.encoder_bias2)) {}

  std::vector<double> operator()(extent i, extent j) const {
    const extent m = a.size() / l.bias1.shape()[0], d = l.bias1.shape()[1];
    std::vector<double> y(2 * d);
    add_row(y.data(), 1, l.bias1, i);
    add_row(y.data() + d, 1, l.bias2, j);
    for (extent q = 0; q < m; ++q) {
      add_row(y.data(), a[i * m + q], l.decoder11, i * m + q);
      add_row(y.data(), b[j * m + q], l.decoder12, i * m + q);
      add_row(y.data() + d, a[i * m + q], l.decoder21, j * m + q);
      add_row(y.data() + d, b[j * m + q], l.decoder22, j * m + q);
    }
    return y;
  }
};

template <class T, class X>
hd_experts<T> experts_of(const monet_hd<T>& l, const X& x, extent t) {
  return {l, x, t};
}
template <class T, class X>
vd_experts<T> experts_of(const monet_vd<T>& l, const X& x, extent t) {
  return {l, x, t};
}

// Returns the sum over p and all (i, j) that are not deleted.
template <class Layer, class X, class G>
std::vector<double> output(const Layer& l, const X& x, const G& g1, const G& g2) {
  const auto [tokens, p, s] = g1.shape();
  const std::set<index_pair> gone(l.deleted.begin(), l.deleted.end());
  std::vector<double> all;
  for (extent t = 0; t < tokens; ++t) {
    const auto expert = experts_of(l, x, t);
    std::vector<double> y;
    for (extent i = 0; i < s; ++i)
      for (extent j = 0; j < s; ++j) {
        const auto e = expert(i, j);
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
