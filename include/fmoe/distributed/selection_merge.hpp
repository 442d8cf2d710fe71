// SPDX-License-Identifier: MIT
// A selection of the best entries of rows that are cut over ranks: what each part would select is
// merged, and is what one process selects.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <fmoe/distributed/candidate.hpp>
#include <fmoe/distributed/exchange_tokens.hpp>
#include <fmoe/distributed/selected_rows.hpp>

namespace fmoe::detail {

// The logarithm of the sum of the exponentials of some numbers; NaN if one of them is, or is
// infinite.
template <class T>
double log_sum(std::span<const T> numbers) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const T x : numbers) top = std::isnan(x) || double{x} > top ? double{x} : top;
  for (const T x : numbers) sum += std::exp(double{x} - top);
  return top + std::log(sum);
}

// The same of some such logarithms: of neighbours first, as fold_rows adds.
inline double fold_log_sums(std::vector<double> sums) {
  for (extent step = 1; step < sums.size(); step *= 2)
    for (extent i = 0; i + step < sums.size(); i += 2 * step)
      sums[i] = log_sum(std::span<const double>(std::array{sums[i], sums[i + step]}));
  return sums[0];
}

template <class T>
struct selection_merge {
  communicator& ranks;
  const axis_cut& cut;
  const call_tokens& tokens;
  list_by<array_id, std::vector<T>>& arrays;

  // Each rank sends its best to the token's owner, which tells all ranks the last entry that the
  // selection keeps. So each rank knows which of its own are kept, and what they weigh.
  void run(const stage_exchange& e) {
    const std::vector<entry> mine = best(e);
    const std::vector<bound> bounds = bounds_of(e, mine);
    selected_rows<T> rows(cut, e, arrays);
    const extent kept = kept_on(e, ranks.rank());
    std::vector<entry> found;
    for (extent t = 0; t < tokens.all(); ++t) {
      found.clear();
      for (const entry& c : std::span(mine).subspan(t * kept, kept))
        if (c.index != entry::nowhere && !bounds[t].last.is_before(c)) found.push_back(c);
      std::ranges::sort(found, {}, &entry::index);
      for (const entry& c : found)
        rows.add(t, c.index - cut.begin_of(ranks.rank()),
                 weight(e.rule.weights, c.value, bounds[t].log_sum));
    }
  }

 private:
  using entry = candidate<T>;
  // The last entry of a row that is kept, and the logarithm of the sum by which a softmax divides.
  struct bound {
    entry last;
    double log_sum = 0;
  };

  static bool is_before(const entry& a, const entry& b) { return a.is_before(b); }

  static T weight(weighting w, T score, double log_sum) {
    switch (w) {
      case weighting::score: return score;
      case weighting::one: return 1;
      case weighting::relu: return score < 0 ? 0 : score;
      default: return static_cast<T>(std::exp(double{score} - log_sum));
    }
  }

  extent kept_on(const stage_exchange& e, extent r) const {
    return std::min(e.rule.keep, cut.count_of(r));
  }

  // What this rank has of one token that may be selected.
  void list(const stage_exchange& e, extent token, std::vector<entry>& found) {
    found.clear();
    auto from = e.from.begin();
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      const extent own = cut.own(i), n = cut.count(own);
      const bool has_all = has_scores(e.rule, n);
      const extent count = has_all ? n : e.rule.keep;
      const T* const values = arrays[*from++].data() + token * count;
      const T* const indices = has_all ? nullptr : arrays[*from++].data() + token * count;
      for (extent k = 0; k < count; ++k) {
        const T place = indices == nullptr ? static_cast<T>(k) : indices[k];
        if ((values[k] == 0 && !counts_zeros(e.rule)) || place < 0) found.push_back({});
        else
          found.push_back({values[k], static_cast<typename entry::index_type>(
                                          cut.begin(own) + static_cast<extent>(place))});
      }
    }
  }

  // The best of this rank, of all tokens.
  std::vector<entry> best(const stage_exchange& e) {
    const extent kept = kept_on(e, ranks.rank());
    std::vector<entry> mine, found;
    for (extent t = 0; t < tokens.all(); ++t) {
      list(e, t, found);
      const auto end = found.begin() + static_cast<std::ptrdiff_t>(kept);
      std::nth_element(found.begin(), end, found.end(), is_before);
      mine.insert(mine.end(), found.begin(), end);
    }
    return mine;
  }

  std::vector<bound> bounds_of(const stage_exchange& e, const std::vector<entry>& mine) {
    std::vector<extent> in_counts;
    for (extent r = 0; r < ranks.size(); ++r) in_counts.push_back(tokens.own() * kept_on(e, r));
    std::vector<entry> theirs(std::accumulate(in_counts.begin(), in_counts.end(), extent{0}));
    ranks.all_to_all(std::span<const entry>(mine), tokens.times(kept_on(e, ranks.rank())),
                     std::span(theirs), in_counts);
    std::vector<double> sums;
    if (e.rule.weights == weighting::softmax_of_all) sums = sums_of_rows(e);

    std::vector<bound> own(tokens.own()), all(tokens.all());
    std::vector<entry> found;
    for (extent t = 0; t < tokens.own(); ++t) {
      found.clear();
      const entry* of_rank = theirs.data();
      for (extent r = 0; r < ranks.size(); of_rank += in_counts[r++]) {
        const entry* const of_token = of_rank + t * kept_on(e, r);
        found.insert(found.end(), of_token, of_token + kept_on(e, r));
      }
      const auto end = found.begin() + static_cast<std::ptrdiff_t>(e.rule.keep);
      std::nth_element(found.begin(), end - 1, found.end(), is_before);
      own[t].last = *(end - 1);
      if (!sums.empty()) own[t].log_sum = sums[t];
      if (e.rule.weights == weighting::softmax) own[t].log_sum = sum_of_kept({found.begin(), end});
    }
    if (e.rule.weights == weighting::softmax || e.rule.weights == weighting::softmax_of_all) {
      ranks.all_gather(std::span<const bound>(own), std::span(all), tokens.of_rank);
      return all;
    }
    std::vector<entry> last(tokens.all()), own_last;
    for (const bound& b : own) own_last.push_back(b.last);
    ranks.all_gather(std::span<const entry>(own_last), std::span(last), tokens.of_rank);
    for (extent t = 0; t < all.size(); ++t) all[t].last = last[t];
    return all;
  }

  // In the order of their indices, so that the number of ranks does not decide bits.
  static double sum_of_kept(std::vector<entry> kept) {
    std::ranges::sort(kept, {}, &entry::index);
    std::vector<T> scores;
    for (const entry& k : kept) scores.push_back(k.value);
    return log_sum(std::span<const T>(scores));
  }

  // Of this rank's tokens: the logarithm of the sum of exponentials over all parts.
  std::vector<double> sums_of_rows(const stage_exchange& e) {
    std::vector<double> mine, theirs(ranks.size() * tokens.own()), found, parts;
    for (extent t = 0; t < tokens.all(); ++t) {
      parts.clear();
      for (extent i = 0; i < e.from.size(); ++i) {
        const extent n = cut.count(cut.own(i));
        parts.push_back(log_sum(std::span<const T>(arrays[e.from[i]]).subspan(t * n, n)));
      }
      mine.push_back(fold_log_sums(parts));
    }
    ranks.all_to_all(std::span<const double>(mine), tokens.of_rank, std::span(theirs),
                     std::vector<extent>(ranks.size(), tokens.own()));
    for (extent t = 0; t < tokens.own(); ++t) {
      parts.clear();
      for (extent r = 0; r < ranks.size(); ++r) parts.push_back(theirs[r * tokens.own() + t]);
      found.push_back(fold_log_sums(parts));
    }
    return found;
  }
};

}  // namespace fmoe::detail
