// SPDX-License-Identifier: MIT
// Counts how often and how strongly each expert is used, over a stream of batches of coefficients
// or over a part of its tokens: MxD's feature frequency (Oldfield et al. 2025, C.1), and muMoE's
// mean coefficients of a subpopulation (Oldfield et al. 2024, Eq. 5).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <ranges>
#include <vector>

#include <fmoe/analysis/token_batch.hpp>

namespace fmoe::detail {

// A range that says for each token of a batch whether it is counted.
template <class M>
concept membership =
    std::ranges::sized_range<M> && std::convertible_to<std::ranges::range_reference_t<M>, bool>;

}  // namespace fmoe::detail

namespace fmoe {

// The results hold for all tokens counted so far; NaN counts as a coefficient other than 0. Sums
// are doubles, and bitwise the same for any split of the stream into batches and any number of
// threads.
class expert_statistics {
 public:
  explicit expert_statistics(std::size_t experts)
      : counts_(experts),
        sums_(experts),
        largest_(experts, -std::numeric_limits<double>::infinity()) {}

  // Adds a batch of coefficients a, an array [t, n]. Throws shape_error unless it has a column for
  // each expert.
  template <class A>
  void add(const A& a) {
    detail::with_batch(a, counts_.size(), [&](const auto& batch) {
      std::vector<std::size_t> rows(batch.tokens);
      std::iota(rows.begin(), rows.end(), std::size_t{0});
      count(batch, rows);
    });
  }

  // Adds the tokens of a batch that belong to a subpopulation; members is a range of bool, one for
  // each token. Throws shape_error as above, or for another number of members.
  template <class A, class Members>
  void add(const A& a, const Members& members) {
    constexpr bool are_members = detail::membership<const Members>;
    static_assert(are_members, "expert_statistics: members is a range of bool, one a token");
    if constexpr (are_members)
      detail::with_batch(a, counts_.size(), [&](const auto& batch) {
        detail::expects<shape_error>(std::ranges::size(members) == batch.tokens,
                                     "[expert_statistics] there are ", batch.tokens, " tokens and ",
                                     std::ranges::size(members), " members");
        std::vector<std::size_t> rows;
        std::size_t t = 0;
        for (const bool is_member : members) {
          if (is_member) rows.push_back(t);
          ++t;
        }
        count(batch, rows);
      });
  }

  std::size_t tokens() const { return tokens_; }
  // [n]: the number of tokens with a coefficient other than 0.
  const std::vector<std::size_t>& counts() const { return counts_; }

  // [n]: the share of the tokens that use the expert. Throws value_error if there are no tokens,
  // and so do the functions below.
  std::vector<double> frequency() const {
    return per_token(counts_, [](double part) { return part; });
  }
  // [n]: the decimal logarithm of the frequency, as MxD draws it; -infinity for an expert that no
  // token uses.
  std::vector<double> log10_frequency() const {
    return per_token(counts_, [](double part) { return std::log10(part); });
  }
  // [n]: the mean over all tokens, including those that do not use the expert.
  std::vector<double> mean_coefficients() const {
    return per_token(sums_, [](double mean) { return mean; });
  }
  // [n]: the greatest coefficient over all tokens; 0 if no coefficient of the expert is positive
  // and a token does not use it. NaN is the greatest.
  const std::vector<double>& largest() const {
    expects_tokens();
    return largest_;
  }

 private:
  void expects_tokens() const {
    detail::expects<value_error>(tokens_ != 0,
                                 "[expert_statistics] there are no tokens yet: add some first");
  }

  std::vector<double> per_token(const auto& sums, const auto& f) const {
    expects_tokens();
    std::vector<double> parts;
    for (const auto sum : sums)
      parts.push_back(f(static_cast<double>(sum) / static_cast<double>(tokens_)));
    return parts;
  }

  // Compilers do not make vectors of the plain loop below.
  static constexpr std::size_t lanes = 4;
  using doubles = detail::vector_of<double, lanes>;
  using integers = detail::vector_of<std::int64_t, lanes>;
  static_assert(sizeof(std::size_t) == sizeof(std::int64_t));

  // Counts the coefficients of experts n, n + 1, ...
  void count_some(const doubles& a, std::size_t n) {
    integers counts;
    doubles sums, largest;
    std::memcpy(&counts, &counts_[n], sizeof counts);
    std::memcpy(&sums, &sums_[n], sizeof sums);
    std::memcpy(&largest, &largest_[n], sizeof largest);
    counts -= a != 0;  // which is -1 where it holds
    sums += a;
    largest = FMOE_CHOSEN((largest == largest) & ~(a <= largest), a, largest);
    std::memcpy(&counts_[n], &counts, sizeof counts);
    std::memcpy(&sums_[n], &sums, sizeof sums);
    std::memcpy(&largest_[n], &largest, sizeof largest);
  }

  void count(const auto& batch, const std::vector<std::size_t>& rows) {
    detail::for_expert_blocks(counts_.size(), [&](std::size_t first, std::size_t end) {
      for (const std::size_t t : rows) {
        std::size_t n = first;
        for (; n + lanes <= end; n += lanes) {
          doubles some{};
          batch.read(t, n, some);
          count_some(some, n);
        }
        for (; n < end; ++n) {
          const double a = batch(t, n);
          counts_[n] += a != 0;
          sums_[n] += a;
          if (!std::isnan(largest_[n]) && !(a <= largest_[n])) largest_[n] = a;
        }
      }
    });
    tokens_ += rows.size();
  }

  std::vector<std::size_t> counts_;
  std::vector<double> sums_, largest_;
  std::size_t tokens_ = 0;
};

}  // namespace fmoe
