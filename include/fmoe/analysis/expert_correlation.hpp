// SPDX-License-Identifier: MIT
// Correlates each of Monet's experts with a score of the tokens, such as toxicity (Park et al.
// 2024, Sec. D.3), over a stream of batches.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include <fmoe/analysis/routed_rows.hpp>
#include <fmoe/base/pairs.hpp>

namespace fmoe {

// Pearson's correlation of the routing probability q of expert (i, j), i, j < s, summed over heads,
// with a score y: (n sum q y - sum q sum y) / sqrt((n sum q^2 - (sum q)^2) (n sum y^2 - (sum y)^2))
// over all n tokens added so far. The first score is subtracted from y, so that a mean far from 0
// costs no digits. It takes 24 bytes for each expert, and gives the same bits for any threads and
// batches.
class expert_correlation {
 public:
  explicit expert_correlation(std::size_t s)
      : s_(s),
        experts_(detail::element_count(std::array{s, std::size_t{3}, s}, sizeof(double))) {}

  // For add_routing: what `add` adds.
  auto batch(std::span<const double> scores) { return added<double>{*this, scores}; }
  auto batch(std::span<const float> scores) { return added<float>{*this, scores}; }

  // Adds a batch: g1, g2 [t, p, s] and a score for each token. Throws before anything is added:
  // shape_error unless they fit each other and s, value_error for entries that are not finite and
  // for scores that are not finite or beyond 1e100.
  template <class Arch = cpu::native, class T>
  void add(const tensor<T, 3>& g1, const tensor<T, 3>& g2, std::span<const double> scores) {
    add_routing<Arch>(g1, g2, batch(scores));
  }
  template <class Arch = cpu::native, class T>
  void add(const tensor<T, 3>& g1, const tensor<T, 3>& g2, std::span<const float> scores) {
    add_routing<Arch>(g1, g2, batch(scores));
  }

  std::size_t tokens() const { return tokens_; }

  // Returns a number from -1 to 1. It is 0 if the scores or the probabilities are the same for all
  // tokens, as for an expert that no token has reached. Probabilities count as the same if their
  // difference is within the rounding of their sums. Throws value_error if there is no such expert.
  double correlation(index_pair expert) const {
    detail::expects<value_error>(expert[0] < s_ && expert[1] < s_, "[expert_correlation] expert (",
                                 expert[0], ", ", expert[1], ") is asked for and there are ", s_,
                                 " x ", s_);
    return of(expert[0], expert[1]);
  }
  // Returns all correlations, [s, s].
  tensor<double, 2> correlations() const {
    tensor<double, 2> r({s_, s_});
    for (std::size_t i = 0; i < s_; ++i)
      for (std::size_t j = 0; j < s_; ++j) r(i, j) = of(i, j);
    return r;
  }
  // Returns the experts whose correlation is greater than `threshold` (the paper's: 0.2, 0.1 and
  // 0.05), ascending, as monet_hd::deleted and monet_vd::deleted take them.
  std::vector<index_pair> experts_above(double threshold) const {
    std::vector<index_pair> experts;
    for (std::size_t i = 0; i < s_; ++i)
      for (std::size_t j = 0; j < s_; ++j)
        if (of(i, j) > threshold) experts.push_back({i, j});
    return experts;
  }

 private:
  template <class Score>
  struct added {
    expert_correlation& to;
    std::span<const Score> scores;

    template <class T>
    void check(const tensor<T, 3>& g1, const tensor<T, 3>& g2) const {
      detail::expects<shape_error>(scores.size() == g1.shape()[0],
                                   "[expert_correlation] there are scores of ", scores.size(),
                                   " tokens and g1 is of ", g1.shape()[0]);
      for (std::size_t t = 0; t < scores.size(); ++t)
        detail::expects<value_error>(std::abs(static_cast<double>(scores[t])) <= 1e100,
                                     "[expert_correlation] the score of token ", t, " is ",
                                     scores[t], " and has to be a number of at most 1e100");
      detail::expects_routing(g1, g2, to.s_);
    }
    void begin() const {
      if (to.tokens_ == 0 && !scores.empty()) to.first_score_ = static_cast<double>(scores[0]);
    }
    void visit(std::size_t i, std::size_t t, const routed_row& row) const {
      double *const sums = to.experts_.data() + i * 3 * to.s_, *const squares = sums + to.s_,
                    *const products = squares + to.s_;
      const double y = static_cast<double>(scores[t]) - to.first_score_;
      row.each([=](std::size_t j, double q) {
        sums[j] += q;
        squares[j] += q * q;
        products[j] += q * y;
      });
    }
    void end(std::size_t) const {
      for (const Score score : scores) {
        const double y = static_cast<double>(score) - to.first_score_;
        to.scores_ += y;
        to.squared_scores_ += y * y;
      }
      to.tokens_ += scores.size();
    }
  };

  double of(std::size_t i, std::size_t j) const {
    const double* const sums = experts_.data() + i * 3 * s_ + j;
    const double n = static_cast<double>(tokens_), q = sums[0], qq = n * sums[s_];
    const double spread_q = qq - q * q, spread_y = n * squared_scores_ - scores_ * scores_;
    // The rounding of sums of n numbers of one sign.
    const double rounding = n * std::numeric_limits<double>::epsilon() * qq;
    if (!(spread_q > rounding && spread_y > 0)) return 0;
    const double r = (n * sums[2 * s_] - q * scores_) / (std::sqrt(spread_q) * std::sqrt(spread_y));
    return std::clamp(r, -1.0, 1.0);
  }

  std::size_t s_, tokens_ = 0;
  double first_score_ = 0;
  // The sums of the scores less the first score, and of their squares.
  double scores_ = 0, squared_scores_ = 0;
  std::vector<double> experts_;  // for each i the sums of q, of q^2 and of q y, by j
};

}  // namespace fmoe
