// SPDX-License-Identifier: MIT
// The exchanges of a plan: ranks bring a value from one spread to another.
#pragma once

#include <algorithm>
#include <vector>

#include <fmoe/distributed/routes.hpp>
#include <fmoe/distributed/row_merges.hpp>
#include <fmoe/distributed/selection_merge.hpp>

namespace fmoe::detail {

template <class T>
struct exchange_run {
  communicator& ranks;
  const axis_cut& cut;
  const call_tokens& tokens;
  list_by<array_id, std::vector<T>>& arrays;
  token_routes& routes;
  // Makes all entries that a selection may keep, where a graph has given fewer.
  function_ref<best_rows<T>(const stage_exchange&, std::span<const extent>)> make_more;

  void run(const stage_exchange& e) {
    if (e.function || e.norm) return merge_rows(e);
    if (is_partial(e.from_how)) add_parts(e);
    if (e.is_sum) return move_sum(e);
    if (e.merges) return merge_selection(e);
    if (e.by == travel::entries || is_routed(e.from_how) || is_routed(e.to_how))
      return route_run<T>{ranks, cut, tokens, arrays, routes}.run(e);
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
      default: to_whole ? gather_parts(e) : send_parts_to_rows(e);
    }
  }

 private:
  // The sums of this rank's parts become one, as fold_rows adds. A graph would make one longer sum
  // of them, and the number of parts on a rank would decide bits.
  void add_parts(const stage_exchange& e) {
    const extent rows = e.is_sum ? 1 : is_routed(e.from_how) ? routes.came.size() : tokens.all();
    for (extent step = 1; step < e.from.size(); step *= 2)
      for (extent i = 0; i + step < e.from.size(); i += 2 * step)
        for (extent k = 0; k < rows * e.numbers; ++k)
          arrays[e.from[i]][k] += arrays[e.from[i + step]][k];
  }

  // A sum over the tokens of all ranks, from parts of it or from what each rank has of it.
  void move_sum(const stage_exchange& e) {
    const std::span<T> from(arrays[e.from[0]]), to(arrays[e.to[0]]);
    if (e.from_how == spread::label) {
      const std::vector<T> mine = own_columns(e, 1);
      std::vector<T> all(e.numbers);
      ranks.all_gather(std::span<const T>(mine), std::span(all), column_counts(e, 1));
      return join_columns(e, all, 1, to.data());
    }
    if (e.to_how == spread::whole) {
      std::ranges::copy(from, to.begin());
      return ranks.all_reduce(to);
    }
    std::vector<T> columns, mine(e.outer * cut.count_of(ranks.rank()) * e.inner);
    for (extent r = 0; r < ranks.size(); ++r)
      for (extent k = 0; k < e.outer; ++k) {
        const auto run =
            from.subspan((k * cut.length + cut.begin_of(r)) * e.inner, cut.count_of(r) * e.inner);
        columns.insert(columns.end(), run.begin(), run.end());
      }
    ranks.reduce_scatter(std::span<const T>(columns), column_counts(e, 1), std::span(mine));
    for (extent i = 0; i < e.to.size(); ++i)
      each_run(cut, i, e.outer, e.inner, [&](extent in_part, extent in_row, extent n) {
        std::copy_n(mine.data() + in_row, n, arrays[e.to[i]].data() + in_part);
      });
  }

  // The parts of this rank, for this many tokens, side by side.
  std::vector<T> own_columns(const stage_exchange& e, extent count) {
    const extent width = cut.count_of(ranks.rank());
    std::vector<T> rows(count * e.outer * width * e.inner);
    for (extent i = 0; i < e.from.size(); ++i)
      each_run(cut, i, count * e.outer, e.inner, [&](extent in_part, extent in_row, extent n) {
        std::copy_n(arrays[e.from[i]].data() + in_part, n, rows.data() + in_row);
      });
    return rows;
  }
  // Rows of whole values from the columns of each rank, one rank after the other.
  void join_columns(const stage_exchange& e, const std::vector<T>& columns, extent count, T* to) {
    const T* from = columns.data();
    for (extent r = 0; r < ranks.size(); ++r) {
      const extent run = cut.count_of(r) * e.inner;
      for (extent k = 0; k < count * e.outer; ++k, from += run)
        std::copy_n(from, run, to + (k * cut.length + cut.begin_of(r)) * e.inner);
    }
  }
  std::vector<extent> column_counts(const stage_exchange& e, extent count) const {
    std::vector<extent> counts;
    for (extent r = 0; r < ranks.size(); ++r)
      counts.push_back(count * e.outer * cut.count_of(r) * e.inner);
    return counts;
  }

  void gather_parts(const stage_exchange& e) {
    const std::vector<T> mine = own_columns(e, tokens.all());
    std::vector<T> all(tokens.all() * e.numbers);
    ranks.all_gather(std::span<const T>(mine), std::span(all), column_counts(e, tokens.all()));
    join_columns(e, all, tokens.all(), arrays[e.to[0]].data());
  }
  void send_parts_to_rows(const stage_exchange& e) {
    const std::vector<T> mine = own_columns(e, tokens.all());
    std::vector<T> rows(tokens.own() * e.numbers);
    ranks.all_to_all(std::span<const T>(mine),
                     tokens.times(e.outer * cut.count_of(ranks.rank()) * e.inner), std::span(rows),
                     column_counts(e, tokens.own()));
    join_columns(e, rows, tokens.own(), arrays[e.to[0]].data());
  }
  void send_rows_to_parts(const stage_exchange& e) {
    token_routes every{std::vector<extent>(ranks.size(), tokens.own()), tokens.of_rank, {}, {}};
    for (extent r = 0; r < ranks.size(); ++r)
      for (extent t = 0; t < tokens.own(); ++t) every.sent.push_back(t);
    every.came.resize(tokens.all());
    route_run<T>{ranks, cut, tokens, arrays, every}.send_columns(e);
  }

  void merge_selection(const stage_exchange& e) {
    const auto more = [&](std::span<const extent> of) { return make_more(e, of); };
    selection_merge<T>{ranks, cut, tokens, arrays, more}.run(e);
  }

  void merge_rows(const stage_exchange& e) {
    std::vector<const T*> from;
    std::vector<T*> to;
    for (const array_id id : e.from) from.push_back(arrays[id].data());
    const T* bound = nullptr;
    if (e.bounds > 0) {
      bound = from.back();
      from.pop_back();
    }
    for (const array_id id : e.to) to.push_back(arrays[id].data());
    row_merge_run<T> rows(ranks, cut, tokens, e.outer, std::move(from));
    if (e.norm) rows.apply(*e.norm, to[0]);
    else if (bound != nullptr) rows.apply_bounded_softmax(bound, e.bounds, to);
    else rows.apply(*e.function, e.parameter, to);
  }
};

}  // namespace fmoe::detail
