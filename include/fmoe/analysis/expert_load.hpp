// SPDX-License-Identifier: MIT
// Measures how evenly experts are used, over a stream of batches (AoE, Lv et al. 2025, Eqs. 2 and 6
// to 8).
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <fmoe/analysis/token_batch.hpp>
#include <fmoe/base/real_functions.hpp>

namespace fmoe {

// Returns -sum p log p in nats, with 0 log 0 = 0.
inline double entropy(std::span<const double> p) {
  double sum = 0;
  for (const double x : p)
    if (x != 0) sum -= x * detail::logarithm(x);
  return sum;
}

// Counts over batches. The results hold for all tokens added so far, and are bitwise the same for
// any number of threads and any batches.
class expert_load {
 public:
  explicit expert_load(std::size_t experts) : counts_(experts), probabilities_(experts) {}

  // Adds a batch. chosen [t, n] is 0 where a token does not use an expert; the softmax of a token
  // is that of its scores [t, n]. Throws shape_error unless both are [t, experts].
  template <class T>
  void add(const tensor<T, 2>& chosen, const tensor<T, 2>& scores) {
    detail::expects<shape_error>(
        chosen.shape() == scores.shape() && chosen.shape()[1] == counts_.size(),
        "[expert_load] chosen is [", chosen.shape()[0], ", ", chosen.shape()[1], "] and scores [",
        scores.shape()[0], ", ", scores.shape()[1], "]; there are ", counts_.size(), " experts");
    const std::size_t tokens = chosen.shape()[0], experts = counts_.size();
    std::vector<double> p(tokens * experts), entropies(tokens);
    constexpr std::size_t some = 64;
    cpu::parallel(detail::divide_up(tokens, some), [&](std::size_t part) {
      for (std::size_t t = part * some; t < std::min(tokens, (part + 1) * some); ++t) {
        const std::span row = std::span(p).subspan(t * experts, experts);
        softmax(scores.data() + t * experts, row);
        entropies[t] = entropy(row);
      }
    });
    detail::for_expert_blocks(experts, [&](std::size_t first, std::size_t end) {
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t n = first; n < end; ++n) {
          counts_[n] += chosen(t, n) != 0;
          probabilities_[n] += p[t * experts + n];
        }
    });
    for (const double e : entropies) token_entropies_ += e;
    tokens_ += chosen.shape()[0];
  }

  std::size_t tokens() const { return tokens_; }
  // Returns how many tokens have used each expert.
  const std::vector<std::size_t>& counts() const { return counts_; }

  // Returns f, the share of the tokens that uses each expert (Eq. 6); for top-K it sums to K.
  // Without tokens it returns zeros, and so do the functions below.
  std::vector<double> load() const {
    std::vector<double> f;
    for (const std::size_t c : counts_) f.push_back(per_token(static_cast<double>(c)));
    return f;
  }
  // Returns f divided by its sum.
  std::vector<double> load_share() const {
    std::vector<double> f = load();
    double sum = 0;
    for (const double x : f) sum += x;
    for (double& x : f) x = sum == 0 ? 0 : x / sum;
    return f;
  }
  // Returns P, the mean probability of each expert.
  std::vector<double> mean_probability() const {
    std::vector<double> p;
    for (const double x : probabilities_) p.push_back(per_token(x));
    return p;
  }
  // Returns Ent_conf (Eq. 8), the mean over tokens of the entropy of their probabilities. Ent_load
  // (Eq. 7) is entropy(load()), or that of load_share().
  double confidence_entropy() const { return per_token(token_entropies_); }

  // Returns alpha n sum f_n P_n, where `f` is load() or load_share().
  double auxiliary_loss(std::span<const double> f, double alpha = 0.01) const {
    const std::vector<double> p = mean_probability();
    double sum = 0;
    for (std::size_t n = 0; n < p.size(); ++n) sum += f[n] * p[n];
    return alpha * static_cast<double>(p.size()) * sum;
  }

 private:
  double per_token(double x) const { return tokens_ == 0 ? 0 : x / static_cast<double>(tokens_); }

  template <class T>
  static void softmax(const T* scores, std::span<double> p) {
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::size_t n = 0; n < p.size(); ++n)
      most = std::max(most, static_cast<double>(scores[n]));
    for (std::size_t n = 0; n < p.size(); ++n)
      sum += p[n] = detail::exponential(static_cast<double>(scores[n]) - most);
    for (double& x : p) x /= sum;
  }

  std::vector<std::size_t> counts_;
  std::vector<double> probabilities_;  // summed over the tokens
  double token_entropies_ = 0;
  std::size_t tokens_ = 0;
};

}  // namespace fmoe
