// SPDX-License-Identifier: MIT
// The attention of examples/train_language.cpp against plain loops, and its gradient against
// central differences.
#include <cmath>
#include <cstdint>
#include <vector>

#include <fmoe/base/random.hpp>

#include "examples/attention.hpp"
#include "support/catch.hpp"

namespace {

using rows = training::attention<double>::rows;
using Eigen::Index;

// Two sequences of 5 rows, 6 numbers wide, with 3 heads.
constexpr Index context = 5, count = 2 * context, width = 6, heads = 3, each = width / heads;

rows drawn(Index columns, std::uint64_t seed) {
  fmoe::random_stream random(seed);
  rows x(count, columns);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = 2 * random.uniform();
  return x;
}

rows attended(const rows& qkv) {
  training::attention<double> a(context, heads);
  rows y(count, width);
  a.forward(qkv, y);
  return y;
}

// The same by plain loops.
rows by_loops(const rows& qkv) {
  rows y = rows::Zero(count, width);
  for (Index t = 0; t < count; ++t)
    for (Index head = 0; head < heads; ++head) {
      const Index first = t / context * context;
      std::vector<double> p;
      double sum = 0;
      for (Index other = first; other <= t; ++other) {
        double score = 0;
        for (Index i = 0; i < each; ++i)
          score += qkv(t, head * each + i) * qkv(other, width + head * each + i);
        p.push_back(std::exp(score / std::sqrt(static_cast<double>(each))));
        sum += p.back();
      }
      for (Index other = first; other <= t; ++other)
        for (Index i = 0; i < each; ++i)
          y(t, head * each + i) += p[static_cast<std::size_t>(other - first)] / sum *
                                   qkv(other, 2 * width + head * each + i);
    }
  return y;
}

TEST_CASE("attention is that of plain loops", "[attention]") {
  const rows qkv = drawn(3 * width, 1);
  CHECK((attended(qkv) - by_loops(qkv)).cwiseAbs().maxCoeff() < 1e-14);
}

TEST_CASE("large scores do not overflow", "[attention]") {
  const rows y = attended(1e3 * drawn(3 * width, 2));
  CHECK(y.allFinite());
}

TEST_CASE("the gradient of attention is that of central differences", "[attention]") {
  const rows qkv = drawn(3 * width, 3), dy = drawn(width, 4);
  training::attention<double> a(context, heads);
  rows y(count, width), dqkv = rows::Constant(count, 3 * width, 77);
  a.forward(qkv, y);
  a.backward(qkv, dy, dqkv);
  constexpr double h = 1e-5;
  double worst = 0, largest = 0;
  for (Index i = 0; i < qkv.size(); ++i) {
    rows above = qkv, below = qkv;
    above.data()[i] += h;
    below.data()[i] -= h;
    const double slope =
        (by_loops(above).cwiseProduct(dy).sum() - by_loops(below).cwiseProduct(dy).sum()) / (2 * h);
    worst = std::max(worst, std::abs(slope - dqkv.data()[i]));
    largest = std::max(largest, std::abs(slope));
  }
  CHECK(largest > 0.5);
  CHECK(worst < 1e-8);
}

}  // namespace
