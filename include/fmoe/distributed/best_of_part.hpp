// SPDX-License-Identifier: MIT
// What a part gives to a selection over all parts: all its scores, or some of its best.
#pragma once

#include <algorithm>
#include <cmath>

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
// more. Of the K that are kept it has K/P on average. If an entry is as likely in any part, the
// variance is K/P (1 - 1/P), and a part seldom has four standard deviations more. One entry behind
// these shows that no other is kept.
inline extent first_best(const selection_rule& r, extent n, double parts) {
  if (has_scores(r, n)) return r.keep;
  const double mean = static_cast<double>(r.keep) / parts,
               most = mean + 4 * std::sqrt(mean * (1 - 1 / parts)) + 1;
  return std::min(r.keep, static_cast<extent>(std::ceil(most)));
}

}  // namespace fmoe::detail
