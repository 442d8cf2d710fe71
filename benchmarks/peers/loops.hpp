// SPDX-License-Identifier: MIT
// What stands between the products of a layer: pointwise functions, gates and selections of one
// row. All peers that only have products share these loops, which the compiler vectorises (the file
// is built with -ffast-math).
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe::peers {

using detail::extent;

inline void add_bias_and_gelu(float* z, const float* bias, extent n) {
  for (extent j = 0; j < n; ++j) {
    const float v = z[j] + bias[j];
    z[j] = 0.5f * v * (1 + std::erf(v * 0.70710678f));
  }
}

inline float silu(float v) { return v / (1 + std::exp(-v)); }

inline float dot(const float* a, const float* b, extent n) {
  float sum = 0;
  for (extent j = 0; j < n; ++j) sum += a[j] * b[j];
  return sum;
}

inline void add_scaled(float* y, float a, const float* x, extent n) {
  for (extent j = 0; j < n; ++j) y[j] += a * x[j];
}

inline float greatest(const float* v, extent n) {
  float m = v[0];
  for (extent j = 1; j < n; ++j) m = std::max(m, v[j]);
  return m;
}

// One element of a row that a selection keeps.
struct kept {
  float value;
  extent index;
};

// The k greatest elements of a row, the lower index first among equals. k blocks have a maximum
// that reaches the k-th greatest of the blocks' maxima, so that no element below it is among the k.
class top_k {
 public:
  std::vector<kept> best;

  void operator()(const float* v, extent n, extent k) {
    const extent block = n >= 64 * k ? 64 : std::max<extent>(1, n / (4 * k)),
                 blocks = (n + block - 1) / block;
    maxima_.resize(blocks);
    for (extent b = 0; b < blocks; ++b)
      maxima_[b] = greatest(v + b * block, std::min(block, n - b * block));
    float bound = -HUGE_VALF;
    if (blocks > k) {
      sorted_ = maxima_;
      const auto kth = sorted_.begin() + static_cast<std::ptrdiff_t>(k - 1);
      std::nth_element(sorted_.begin(), kth, sorted_.end(), std::greater<>());
      bound = *kth;
    }
    best.clear();
    for (extent b = 0; b < blocks; ++b) {
      if (maxima_[b] < bound) continue;
      for (extent j = b * block; j < std::min(n, (b + 1) * block); ++j)
        if (v[j] >= bound) best.push_back({v[j], j});
    }
    const auto before = [](const kept& a, const kept& b) {
      return a.value > b.value || (a.value == b.value && a.index < b.index);
    };
    std::partial_sort(best.begin(),
                      best.begin() + static_cast<std::ptrdiff_t>(std::min(k, best.size())),
                      best.end(), before);
    best.resize(std::min(k, best.size()));
  }

  // Replaces the values by their softmax.
  void to_softmax() {
    float sum = 0;
    const float most = best[0].value;
    for (kept& e : best) sum += e.value = std::exp(e.value - most);
    for (kept& e : best) e.value /= sum;
  }

 private:
  std::vector<float> maxima_, sorted_;
};

// Entmax with alpha 1.5 of the layer norm of a row: p = max(z - tau, 0)^2, where z are the halved
// scores; Newton's steps find tau from below. v is
// overwritten.
inline void entmax_of_norm(float* v, extent n, float* to) {
  float mean = 0, square = 0;
  for (extent j = 0; j < n; ++j) mean += v[j];
  mean /= static_cast<float>(n);
  for (extent j = 0; j < n; ++j) square += (v[j] - mean) * (v[j] - mean);
  const float scale = 0.5f / std::sqrt(square / static_cast<float>(n) + 1e-5f);
  const float most = greatest(v, n);
  for (extent j = 0; j < n; ++j) v[j] = (v[j] - most) * scale;
  float tau = -1;
  for (int step = 0; step < 20; ++step) {
    float sum = 0, squares = 0;
    for (extent j = 0; j < n; ++j) {
      const float above = std::max(v[j] - tau, 0.0f);
      sum += above;
      squares += above * above;
    }
    const float move = (squares - 1) / (2 * sum);
    tau += move;
    if (move < 1e-7f) break;
  }
  for (extent j = 0; j < n; ++j) {
    const float above = std::max(v[j] - tau, 0.0f);
    to[j] = above * above;
  }
}

// The softmax over the scores that reach the bound, or over the greatest one.
inline void bounded_softmax(float* v, extent n, float bound) {
  const float most = greatest(v, n), least = std::min(most, bound);
  float sum = 0;
  for (extent j = 0; j < n; ++j) {
    const float e = std::exp(v[j] - most);
    v[j] = v[j] >= least ? e : 0.0f;
    sum += v[j];
  }
  for (extent j = 0; j < n; ++j) v[j] /= sum;
}

}  // namespace fmoe::peers
