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

#include <fmoe/base/function_ref.hpp>
#include <fmoe/base/real_functions.hpp>
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
  for (const T x : numbers) sum += exponential(double{x} - top);
  return top + logarithm(sum);
}

// The same of some such logarithms: of neighbours first, as fold_rows adds.
inline double fold_log_sums(std::vector<double> sums) {
  for (extent step = 1; step < sums.size(); step *= 2)
    for (extent i = 0; i + step < sums.size(); i += 2 * step)
      sums[i] = log_sum(std::span<const double>(std::array{sums[i], sums[i + step]}));
  return sums[0];
}

// The best of a rank for some tokens: their values and places, a row for each of the tokens.
template <class T>
struct best_rows {
  std::vector<T> values, places;
};

template <class T>
struct selection_merge {
  communicator& ranks;
  const axis_cut& cut;
  const call_tokens& tokens;
  list_by<array_id, std::vector<T>>& arrays;
  // Makes as many of this rank's best as the selection keeps, of some tokens.
  function_ref<best_rows<T>(std::span<const extent>)> make_more;

  // Each rank sends its best to the token's owner, which tells all ranks the last entry that the
  // selection keeps. So each rank knows which of its own are kept, and what they weigh. Where all
  // that a rank has sent are kept, it may have others: the owner marks that token, and the rank
  // sends as many as the selection keeps.
  void run(const stage_exchange& e) {
    const std::vector<entry> mine = best(e), theirs = to_owners(e, mine);
    std::vector<bound> bounds = bounds_of(e, theirs);
    entry_rows more;
    if (std::ranges::any_of(bounds, [](const bound& b) { return b.last.has_mark(); }))
      more = exchange_more(e, mine, theirs, bounds);
    selected_rows<T> rows(cut, e, arrays);
    std::vector<entry> found;
    for (extent t = 0, next = 0; t < tokens.all(); ++t) {
      const bool has_more = next < more.of.size() && more.of[next] == t;
      const std::span<const entry> listed = has_more ? row_of(more.entries, next++, e.rule.keep)
                                                     : row_of(mine, t, best_on(e, ranks.rank()));
      found.clear();
      for (const entry& c : listed)
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
  struct entry_rows {
    std::vector<extent> of;  // tokens, ascending
    std::vector<entry> entries;
  };

  static constexpr auto is_before = [](const entry& a, const entry& b) { return a.is_before(b); };

  static T weight(weighting w, T score, double log_sum) {
    switch (w) {
      case weighting::score: return score;
      case weighting::one: return 1;
      case weighting::relu: return score < 0 ? 0 : score;
      default: return static_cast<T>(exponential(double{score} - log_sum));
    }
  }

  static std::span<const entry> row_of(const std::vector<entry>& rows, extent i, extent each) {
    return std::span(rows).subspan(i * each, each);
  }

  // The entries of a token that a rank sends at first.
  extent best_on(const stage_exchange& e, extent r) const {
    return std::min(e.first, cut.count_of(r));
  }
  // Those of one of this rank's tokens, in what the owner got.
  std::span<const entry> sent_by(const stage_exchange& e, const std::vector<entry>& theirs,
                                 extent r, extent t) const {
    extent before = 0;
    for (extent q = 0; q < r; ++q) before += tokens.own() * best_on(e, q);
    return std::span(theirs).subspan(before + t * best_on(e, r), best_on(e, r));
  }

  entry entry_of(const stage_exchange& e, extent part, T value, T place) const {
    if ((value == 0 && !counts_zeros(e.rule)) || place < 0) return {};
    return {value,
            static_cast<typename entry::index_type>(cut.begin(part) + static_cast<extent>(place))};
  }

  // What this rank has of one token that may be selected.
  void list(const stage_exchange& e, extent token, std::vector<entry>& found) {
    found.clear();
    auto from = e.from.begin();
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      const extent own = cut.own(i), n = cut.count(own);
      const bool has_all = has_scores(e.rule, n);
      const T* const values = arrays[*from++].data() + token * (has_all ? n : e.rule.keep);
      const T* const places = has_all ? nullptr : arrays[*from++].data() + token * e.rule.keep;
      for (extent k = 0; k < (has_all ? n : e.first); ++k)
        found.push_back(entry_of(e, own, values[k], has_all ? static_cast<T>(k) : places[k]));
    }
  }

  // The best of this rank, of all tokens.
  std::vector<entry> best(const stage_exchange& e) {
    const extent kept = best_on(e, ranks.rank());
    std::vector<entry> mine, found;
    for (extent t = 0; t < tokens.all(); ++t) {
      list(e, t, found);
      const auto end = found.begin() + static_cast<std::ptrdiff_t>(kept);
      if (end != found.end()) std::nth_element(found.begin(), end, found.end(), is_before);
      mine.insert(mine.end(), found.begin(), end);
    }
    return mine;
  }

  std::vector<entry> to_owners(const stage_exchange& e, const std::vector<entry>& mine) {
    std::vector<extent> in_counts;
    for (extent r = 0; r < ranks.size(); ++r) in_counts.push_back(tokens.own() * best_on(e, r));
    std::vector<entry> theirs(std::accumulate(in_counts.begin(), in_counts.end(), extent{0}));
    ranks.all_to_all(std::span<const entry>(mine), tokens.times(best_on(e, ranks.rank())),
                     std::span(theirs), in_counts);
    return theirs;
  }

  // Puts the entries that are kept first, and returns the last of them.
  static entry last_kept(const stage_exchange& e, std::vector<entry>& found) {
    const auto last = found.begin() + static_cast<std::ptrdiff_t>(e.rule.keep) - 1;
    std::nth_element(found.begin(), last, found.end(), is_before);
    return *last;
  }
  // True if a rank may have other entries that are kept. Those that are 0 are not kept, and what
  // comes behind them may be.
  static bool may_have_more(std::span<const entry> sent, const entry& last) {
    return std::ranges::all_of(sent, [&](const entry& c) {
      return c.index == entry::nowhere ? c.is_before(last) : !last.is_before(c);
    });
  }

  std::vector<bound> bounds_of(const stage_exchange& e, const std::vector<entry>& theirs) {
    std::vector<double> sums;
    if (e.rule.weights == weighting::softmax_of_all) sums = sums_of_rows(e);
    std::vector<bound> own(tokens.own()), all(tokens.all());
    std::vector<entry> found;
    for (extent t = 0; t < tokens.own(); ++t) {
      found.clear();
      for (extent r = 0; r < ranks.size(); ++r) {
        const auto sent = sent_by(e, theirs, r, t);
        found.insert(found.end(), sent.begin(), sent.end());
      }
      own[t].last = last_kept(e, found);
      if (e.first < e.rule.keep) mark(e, theirs, t, own[t].last);
      if (!sums.empty()) own[t].log_sum = sums[t];
      if (e.rule.weights == weighting::softmax)
        own[t].log_sum = sum_of_kept(std::span(found).first(e.rule.keep));
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
  void mark(const stage_exchange& e, const std::vector<entry>& theirs, extent t,
            entry& last) const {
    for (extent r = 0; r < ranks.size(); ++r)
      if (may_have_more(sent_by(e, theirs, r, t), last)) {
        last = last.marked();
        return;
      }
  }

  // Ranks send more of marked tokens, whose bounds become final. Returns what this rank has sent.
  entry_rows exchange_more(const stage_exchange& e, const std::vector<entry>& mine,
                           const std::vector<entry>& theirs, std::vector<bound>& bounds) {
    std::vector<extent> marked;
    entry_rows more;
    for (extent t = 0; t < tokens.all(); ++t) {
      if (!bounds[t].last.has_mark()) continue;
      marked.push_back(t);
      bounds[t].last = bounds[t].last.marked();
      if (may_have_more(row_of(mine, t, e.first), bounds[t].last)) more.of.push_back(t);
    }
    if (!more.of.empty()) {
      const best_rows<T> made = make_more(more.of);
      for (extent i = 0; i < made.values.size(); ++i)
        more.entries.push_back(entry_of(e, cut.own(0), made.values[i], made.places[i]));
    }
    const std::vector<entry> own = bounds_of_marked(e, marked, theirs, more, bounds);
    std::vector<entry> last(marked.size());
    ranks.all_gather(std::span<const entry>(own), std::span(last), by_owner(marked, 1));
    for (extent i = 0; i < marked.size(); ++i) bounds[marked[i]].last = last[i];
    return more;
  }
  // The last entries that are kept of this rank's marked tokens, from what all ranks have sent.
  std::vector<entry> bounds_of_marked(const stage_exchange& e, const std::vector<extent>& marked,
                                      const std::vector<entry>& theirs, const entry_rows& more,
                                      const std::vector<bound>& bounds) {
    const auto sent = [&](extent r, extent t) { return sent_by(e, theirs, r, t - tokens.first()); };
    std::vector<std::vector<extent>> asked(ranks.size());  // by rank: tokens of which more comes
    std::vector<extent> own, in_counts;
    for (const extent t : marked)
      if (t >= tokens.first() && t < tokens.first() + tokens.own()) own.push_back(t);
    for (extent r = 0; r < ranks.size(); ++r) {
      for (const extent t : own)
        if (may_have_more(sent(r, t), bounds[t].last)) asked[r].push_back(t);
      in_counts.push_back(asked[r].size() * e.rule.keep);
    }
    std::vector<entry> came(std::accumulate(in_counts.begin(), in_counts.end(), extent{0}));
    ranks.all_to_all(std::span<const entry>(more.entries), by_owner(more.of, e.rule.keep),
                     std::span(came), in_counts);
    std::vector<std::vector<entry>> rows(own.size());
    for (extent r = 0, at = 0; r < ranks.size(); ++r)
      for (extent i = 0; i < own.size(); ++i) {
        const bool has_more = std::ranges::binary_search(asked[r], own[i]);
        const auto of_rank = has_more ? row_of(came, at++, e.rule.keep) : sent(r, own[i]);
        rows[i].insert(rows[i].end(), of_rank.begin(), of_rank.end());
      }
    std::vector<entry> last;
    for (auto& row : rows) last.push_back(last_kept(e, row));
    return last;
  }
  // By rank: so many for each of these tokens that it owns.
  std::vector<extent> by_owner(const std::vector<extent>& of, extent each) const {
    std::vector<extent> counts;
    for (extent r = 0; r < ranks.size(); ++r) {
      const extent first = tokens.first(r), end = first + tokens.of_rank[r];
      counts.push_back(each * static_cast<extent>(std::ranges::count_if(
                                  of, [&](extent t) { return t >= first && t < end; })));
    }
    return counts;
  }

  // In the order of their indices, so that the number of ranks does not decide bits.
  static double sum_of_kept(std::span<entry> kept) {
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
