// SPDX-License-Identifier: MIT
// The exchanges of a plan: ranks bring a value from one spread to another, or merge what each of
// them has selected.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <fmoe/distributed/row_merges.hpp>
#include <fmoe/distributed/stage_plan.hpp>

namespace fmoe::detail {

// A score and its place; what is 0 has none. The index has the width of the score, so that no byte
// between them is sent.
template <class T>
struct candidate {
  using index_type = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr index_type nowhere = ~index_type{0};

  T value = 0;
  index_type index = nowhere;

  // The order of top_k: NaN is the greatest, and of equal scores the lower index comes first.
  bool is_before(const candidate& o) const {
    const bool mine = std::isnan(value), theirs = std::isnan(o.value);
    if (mine != theirs) return mine;
    if (!mine && value != o.value) return value > o.value;
    return index < o.index;
  }
};

template <class T>
struct exchange_run {
  communicator& ranks;
  const axis_cut& cut;
  const call_tokens& tokens;
  list_by<array_id, std::vector<T>>& arrays;

  // What rank r has of the label's axis.
  extent count_of(extent r) const { return begin_of(r + 1) - begin_of(r); }
  extent begin_of(extent r) const { return cut.begin(r * cut.parts_a_rank()); }

  void run(const stage_exchange& e) {
    if (e.function || e.norm) return merge_rows(e);
    if (e.merges) return merge(e);
    const extent own = tokens.own() * e.numbers, every = tokens.all() * e.numbers;
    const bool to_whole = e.to_how == spread::whole, to_rows = e.to_how == spread::tokens;
    const std::span<const T> from(arrays[e.from[0]]);
    const std::span<T> to(arrays[e.to[0]]);
    switch (e.from_how) {
      case spread::whole:
        std::ranges::copy(from.subspan(tokens.first() * e.numbers, own), to.begin());
        break;
      case spread::tokens:
        if (!to_whole) return send_rows_to_parts(e);
        ranks.all_gather(from.first(own), to.first(every), tokens.times(e.numbers));
        break;
      case spread::partial:
        if (to_rows) {
          ranks.reduce_scatter(from.first(every), tokens.times(e.numbers), to.first(own));
        } else {
          std::ranges::copy(from.first(every), to.begin());
          ranks.all_reduce(to.first(every));
        }
        break;
      case spread::label: to_whole ? gather_parts(e) : send_parts_to_rows(e);
    }
  }

 private:
  // Calls f with the numbers of a part, and those of the same entries in rows of `width` entries
  // that begin at `first`, one run after the other, for some tokens.
  template <class F>
  void each_run(const stage_exchange& e, std::vector<T>& part, extent i, T* rows, extent first,
                extent width, extent from_token, extent count, const F& f) const {
    const extent own = cut.own(i), run = cut.count(own) * e.inner,
                 offset = (cut.begin(own) - first) * e.inner;
    for (extent r = 0; r < count * e.outer; ++r)
      f(part.data() + (from_token * e.outer + r) * run, rows + r * width * e.inner + offset, run);
  }
  static void copy_to_rows(const T* part, T* rows, extent n) { std::copy_n(part, n, rows); }
  static void copy_from_rows(T* part, const T* rows, extent n) { std::copy_n(rows, n, part); }

  // The parts of this rank, for all tokens, side by side.
  std::vector<T> own_columns(const stage_exchange& e) {
    const extent width = count_of(ranks.rank());
    std::vector<T> rows(tokens.all() * e.outer * width * e.inner);
    for (extent i = 0; i < e.from.size(); ++i)
      each_run(e, arrays[e.from[i]], i, rows.data(), begin_of(ranks.rank()), width, 0, tokens.all(),
               copy_to_rows);
    return rows;
  }
  // Rows of whole values from the columns of each rank, one rank after the other.
  void join_columns(const stage_exchange& e, const std::vector<T>& columns, extent count, T* to) {
    const T* from = columns.data();
    for (extent r = 0; r < ranks.size(); ++r) {
      const extent run = count_of(r) * e.inner;
      for (extent k = 0; k < count * e.outer; ++k, from += run)
        std::copy_n(from, run, to + (k * cut.length + begin_of(r)) * e.inner);
    }
  }
  std::vector<extent> column_counts(const stage_exchange& e, extent count) const {
    std::vector<extent> counts;
    for (extent r = 0; r < ranks.size(); ++r)
      counts.push_back(count * e.outer * count_of(r) * e.inner);
    return counts;
  }

  void gather_parts(const stage_exchange& e) {
    const std::vector<T> mine = own_columns(e);
    std::vector<T> all(tokens.all() * e.numbers);
    ranks.all_gather(std::span<const T>(mine), std::span(all), column_counts(e, tokens.all()));
    join_columns(e, all, tokens.all(), arrays[e.to[0]].data());
  }
  void send_parts_to_rows(const stage_exchange& e) {
    const std::vector<T> mine = own_columns(e);
    std::vector<T> rows(tokens.own() * e.numbers);
    ranks.all_to_all(std::span<const T>(mine),
                     tokens.times(e.outer * count_of(ranks.rank()) * e.inner), std::span(rows),
                     column_counts(e, tokens.own()));
    join_columns(e, rows, tokens.own(), arrays[e.to[0]].data());
  }
  void send_rows_to_parts(const stage_exchange& e) {
    const T* const mine = arrays[e.from[0]].data();
    const extent width = count_of(ranks.rank());
    std::vector<T> out, in(tokens.all() * e.outer * width * e.inner);
    for (extent r = 0; r < ranks.size(); ++r)
      for (extent k = 0; k < tokens.own() * e.outer; ++k) {
        const T* const from = mine + (k * cut.length + begin_of(r)) * e.inner;
        out.insert(out.end(), from, from + count_of(r) * e.inner);
      }
    ranks.all_to_all(std::span<const T>(out), column_counts(e, tokens.own()), std::span(in),
                     tokens.times(e.outer * width * e.inner));
    for (extent i = 0; i < e.to.size(); ++i)
      each_run(e, arrays[e.to[i]], i, in.data(), begin_of(ranks.rank()), width, 0, tokens.all(),
               copy_from_rows);
  }

  void merge_rows(const stage_exchange& e) {
    std::vector<const T*> from;
    std::vector<T*> to;
    for (const array_id id : e.from) from.push_back(arrays[id].data());
    for (const array_id id : e.to) to.push_back(arrays[id].data());
    row_merge_run<T> rows(ranks, cut, tokens, e.outer, std::move(from));
    if (e.norm) rows.apply(*e.norm, to[0]);
    else rows.apply(*e.function, e.parameter, to);
  }

  using entry = candidate<T>;
  static bool is_before(const entry& a, const entry& b) { return a.is_before(b); }

  extent kept_on(const stage_exchange& e, extent r) const {
    return std::min(e.rule.keep, count_of(r));
  }

  // What a part has of one token that may be selected.
  void list(const stage_exchange& e, extent token, std::vector<entry>& found) {
    found.clear();
    auto from = e.from.begin();
    for (extent i = 0; i < cut.parts_a_rank(); ++i) {
      const extent own = cut.own(i), n = cut.count(own), kept = std::min(e.rule.keep, n);
      const T* const values = arrays[*from++].data() + token * kept;
      const T* const indices = kept == n ? nullptr : arrays[*from++].data() + token * kept;
      for (extent k = 0; k < kept; ++k) {
        const T place = indices == nullptr ? static_cast<T>(k) : indices[k];
        if (values[k] == 0 || place < 0) found.push_back({});
        else
          found.push_back({values[k], static_cast<typename entry::index_type>(
                                          cut.begin(own) + static_cast<extent>(place))});
      }
    }
  }

  // Each rank sends its best to the token's owner, which tells all ranks the last entry that the
  // selection keeps. So each rank knows which of its own are kept.
  void merge(const stage_exchange& e) {
    const extent kept = kept_on(e, ranks.rank());
    std::vector<entry> mine, found;
    for (extent t = 0; t < tokens.all(); ++t) {
      list(e, t, found);
      const auto end = found.begin() + static_cast<std::ptrdiff_t>(kept);
      std::nth_element(found.begin(), end, found.end(), is_before);
      mine.insert(mine.end(), found.begin(), end);
    }
    std::vector<extent> in_counts;
    for (extent r = 0; r < ranks.size(); ++r) in_counts.push_back(tokens.own() * kept_on(e, r));
    std::vector<entry> theirs(std::accumulate(in_counts.begin(), in_counts.end(), extent{0}));
    ranks.all_to_all(std::span<const entry>(mine), tokens.times(kept), std::span(theirs),
                     in_counts);

    std::vector<entry> last(tokens.own()), bounds(tokens.all());
    for (extent t = 0; t < tokens.own(); ++t) {
      found.clear();
      const entry* of_rank = theirs.data();
      for (extent r = 0; r < ranks.size(); of_rank += in_counts[r++]) {
        const entry* const of_token = of_rank + t * kept_on(e, r);
        found.insert(found.end(), of_token, of_token + kept_on(e, r));
      }
      const auto kth = found.begin() + static_cast<std::ptrdiff_t>(e.rule.keep) - 1;
      std::nth_element(found.begin(), kth, found.end(), is_before);
      last[t] = *kth;
    }
    ranks.all_gather(std::span<const entry>(last), std::span(bounds), tokens.of_rank);

    for (const array_id to : e.to) std::ranges::fill(arrays[to], T{0});
    for (extent t = 0; t < tokens.all(); ++t)
      for (extent k = 0; k < kept; ++k) {
        const entry& c = mine[t * kept + k];
        if (c.index == entry::nowhere || is_before(bounds[t], c)) continue;
        extent i = 0;
        while (c.index >= cut.begin(cut.own(i) + 1)) ++i;
        const extent own = cut.own(i);
        arrays[e.to[i]][t * cut.count(own) + (c.index - cut.begin(own))] = c.value;
      }
  }
};

}  // namespace fmoe::detail
