// SPDX-License-Identifier: MIT
// What a part gives to a selection over all parts: all its scores, or some of its best.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/functions.hpp>

namespace fmoe::detail {

// True if it matters whether a score of 0 is selected.
constexpr bool counts_zeros(const selection_rule& r) {
  return r.weights != weighting::score && r.weights != weighting::relu;
}
// True if the merge of a selection needs all scores of a part of n entries, and not its best.
constexpr bool has_scores(const selection_rule& r, extent n) {
  return counts_zeros(r) || r.keep >= n;
}

// Returns how many of its best a part gives before it is asked for more, if parts have n entries or
// more: as few as all that it gives are kept for one token in 1,000 on average, if an entry is as
// likely in any part. The number of those that a part has of K is then binomial.
inline extent first_best(const selection_rule& r, extent n, double parts) {
  if (has_scores(r, n)) return r.keep;
  constexpr double limit = 1.0 / 1000;
  const double K = static_cast<double>(r.keep);
  std::vector<double> chances;  // their logarithms, of 0, 1 ... K entries
  for (double i = 0; i <= K; ++i)
    chances.push_back(i == 0 ? K * std::log(1 - 1 / parts)
                             : chances.back() + std::log((K + 1 - i) / i / (parts - 1)));
  extent first = r.keep;
  for (double some = 0; first > 0; --first) {  // the chance that a part has so many, or more
    some += std::exp(chances[first]);
    if (parts * some > limit) break;
  }
  return std::min(first + 1, r.keep);
}

}  // namespace fmoe::detail
