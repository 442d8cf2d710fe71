// SPDX-License-Identifier: MIT
// Tokens travel to the ranks that have what they selected, with exact counts, and come back.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include <fmoe/distributed/candidate.hpp>
#include <fmoe/distributed/exchange_tokens.hpp>
#include <fmoe/distributed/selected_rows.hpp>

namespace fmoe::detail {

// Which tokens of a call travel. Those that came are in the order of all tokens.
struct token_routes {
  std::vector<extent> to, from;  // by rank: how many tokens go there, and how many came from it
  std::vector<extent> sent;      // of this rank's tokens, rank by rank
  std::vector<extent> came;      // of all ranks' tokens

  // What was selected: a place in the list of tokens above, and a column of the rank that has it.
  struct entry {
    extent token, column;
  };
  std::vector<extent> entries_to{}, entries_from{};
  std::vector<entry> sent_entries{}, came_entries{};
};

// Calls f(place in the part, place in the row, how many numbers) for the runs of part i of this
// rank in some rows of all its columns.
template <class F>
void each_run(const axis_cut& cut, extent i, extent rows, extent inner, const F& f) {
  const extent own = cut.own(i), run = cut.count(own) * inner,
               width = cut.count_of(cut.rank) * inner,
               offset = (cut.begin(own) - cut.begin_of(cut.rank)) * inner;
  for (extent r = 0; r < rows; ++r) f(r * run, r * width + offset, run);
}

template <class T>
struct route_run {
  communicator& ranks;
  const axis_cut& cut;
  const call_tokens& tokens;
  list_by<array_id, std::vector<T>>& arrays;
  token_routes& routes;
  extent most_rows = all;  // over which a place counts on, or fewer if its type has no room

  void run(const stage_exchange& e) {
    if (e.by == travel::entries)
      return e.from_how == spread::label ? tell_owners(e) : send_entries(e);
    if (e.by == travel::sampled) return send_sampled(e);
    if (is_routed(e.from_how)) return bring_back(e);
    if (e.from_how != spread::tokens) return pick(e);
    return e.to_how == spread::routed ? send_rows(e) : send_columns(e);
  }

  // The columns of each rank, of the tokens that go to it.
  void send_columns(const stage_exchange& e) {
    const T* const mine = arrays[e.from[0]].data();
    std::vector<T> out;
    const extent* token = routes.sent.data();
    for (extent r = 0; r < ranks.size(); ++r)
      for (extent t = 0; t < routes.to[r]; ++t, ++token)
        for (extent k = 0; k < e.outer; ++k) {
          const T* const from =
              mine + ((*token * e.outer + k) * cut.length + cut.begin_of(r)) * e.inner;
          out.insert(out.end(), from, from + cut.count_of(r) * e.inner);
        }
    std::vector<extent> out_counts = routes.to;
    for (extent r = 0; r < ranks.size(); ++r) out_counts[r] *= e.outer * cut.count_of(r) * e.inner;
    const extent width = e.outer * cut.count_of(ranks.rank()) * e.inner;
    std::vector<T> in(routes.came.size() * width);
    ranks.all_to_all(std::span<const T>(out), out_counts, std::span(in), times(routes.from, width));
    for (extent i = 0; i < e.to.size(); ++i)
      each_run(cut, i, routes.came.size() * e.outer, e.inner,
               [&](extent in_part, extent in_row, extent n) {
                 std::copy_n(in.data() + in_row, n, arrays[e.to[i]].data() + in_part);
               });
  }

 private:
  using entry = candidate<T>;
  using place = typename entry::index_type;

  struct found_entry {
    extent row, column;  // of all ranks' rows, and of this rank's columns
    T value;
  };

  static std::vector<extent> times(std::vector<extent> counts, extent n) {
    for (extent& c : counts) c *= n;
    return counts;
  }
  static extent sum(const std::vector<extent>& counts) {
    return std::accumulate(counts.begin(), counts.end(), extent{0});
  }
  // Each rank tells each other one a number.
  std::vector<extent> exchanged(const std::vector<extent>& out) {
    std::vector<extent> in(ranks.size());
    const std::vector<extent> one(ranks.size(), 1);
    ranks.all_to_all(std::span<const extent>(out), one, std::span(in), one);
    return in;
  }

  // The entries of a rank's columns, in the order of rows. The place of each counts on from the row
  // of the one before it.
  void list_entries(const stage_exchange& e, extent r, std::vector<entry>& out) const {
    const T* const rows = arrays[e.from[0]].data();
    const extent width = cut.count_of(r),
                 most = std::min(most_rows, (entry::nowhere - width) / width);
    extent before = 0;
    for (extent row = 0; row < tokens.own() * e.outer; ++row)
      for (extent column = 0; column < width; ++column) {
        const T value = rows[row * cut.length + cut.begin_of(r) + column];
        if (value == 0) continue;
        for (; row - before > most; before += most)
          out.push_back({0, static_cast<place>(most * width)});
        out.push_back({value, static_cast<place>((row - before) * width + column)});
        before = row;
      }
  }

  // Each rank gets the entries of its columns. If they route, the tokens that have one come here.
  void send_entries(const stage_exchange& e) {
    const bool routing = is_routed(e.to_how);
    if (routing) routes = {std::vector<extent>(ranks.size()), {}, {}, {}};
    std::vector<entry> out;
    std::vector<extent> counts;
    for (extent r = 0; r < ranks.size(); ++r) {
      const extent first = out.size();
      list_entries(e, r, out);
      counts.push_back(out.size() - first);
      if (routing) note_sent(e, r, std::span(out).subspan(first));
    }
    const std::vector<extent> theirs = exchanged(counts);
    std::vector<entry> in(sum(theirs));
    ranks.all_to_all(std::span<const entry>(out), counts, std::span(in), theirs);

    const extent width = cut.count_of(ranks.rank());
    std::vector<found_entry> found;
    const entry* next = in.data();
    for (extent r = 0; r < ranks.size(); ++r) {
      extent row = tokens.first(r) * e.outer;
      const extent before = found.size();
      for (extent k = 0; k < theirs[r]; ++k, ++next) {
        row += next->index / width;
        if (next->value != 0) found.push_back({row, next->index % width, next->value});
      }
      if (routing) note_came(e, std::span(found).subspan(before));
    }
    write(e, found, routing);
  }
  void note_sent(const stage_exchange& e, extent r, std::span<const entry> entries) {
    const extent width = cut.count_of(r), first = routes.sent.size(),
                 listed = routes.sent_entries.size();
    extent row = 0;
    for (const entry& s : entries) {
      row += s.index / width;
      if (s.value == 0) continue;
      const extent token = row / e.outer;
      if (routes.sent.size() == first || routes.sent.back() != token) routes.sent.push_back(token);
      routes.sent_entries.push_back({token, cut.begin_of(r) + s.index % width});
    }
    routes.to[r] = routes.sent.size() - first;
    routes.entries_to.push_back(routes.sent_entries.size() - listed);
  }
  void note_came(const stage_exchange& e, std::span<const found_entry> entries) {
    const extent first = routes.came.size();
    for (const found_entry& f : entries) {
      const extent token = f.row / e.outer;
      if (routes.came.size() == first || routes.came.back() != token) routes.came.push_back(token);
      routes.came_entries.push_back({routes.came.size() - 1, f.column});
    }
    routes.from.push_back(routes.came.size() - first);
    routes.entries_from.push_back(entries.size());
  }
  // Rows with these entries, of the tokens that came or of all.
  void write(const stage_exchange& e, const std::vector<found_entry>& found, bool routing) {
    selected_rows<T> rows(cut, e, arrays);
    for (extent k = 0; k < found.size(); ++k) {
      const found_entry& f = found[k];
      const extent row = routing ? routes.came_entries[k].token * e.outer + f.row % e.outer : f.row;
      rows.add(row, f.column, f.value);
    }
  }

  // Each rank knows what all tokens selected of its columns, and tells their owners.
  void tell_owners(const stage_exchange& e) {
    routes = {{}, {}, {}, {}};
    std::vector<std::uint32_t> mine;  // counted from the first token of its owner
    for (extent r = 0, t = 0; r < ranks.size(); ++r) {
      const extent before = mine.size(), first = t;
      for (; t < first + tokens.of_rank[r]; ++t) {
        if (!has_entry(e, t)) continue;
        mine.push_back(static_cast<std::uint32_t>(t - first));
        routes.came.push_back(t);
      }
      routes.from.push_back(mine.size() - before);
    }
    routes.to = exchanged(routes.from);
    std::vector<std::uint32_t> theirs(sum(routes.to));
    ranks.all_to_all(std::span<const std::uint32_t>(mine), routes.from, std::span(theirs),
                     routes.to);
    routes.sent.assign(theirs.begin(), theirs.end());
    pick(e);
  }
  bool has_entry(const stage_exchange& e, extent token) const {
    for (extent i = 0; i < e.from.size(); ++i) {
      const extent n = e.outer * cut.count(cut.own(i));
      for (const T x : std::span(arrays[e.from[i]]).subspan(token * n, n))
        if (x != 0) return true;
    }
    return false;
  }

  // This rank has the rows of all tokens, and takes those that are routed to it.
  void pick(const stage_exchange& e) {
    for (extent i = 0; i < e.from.size(); ++i) {
      const extent n =
          e.to_how == spread::routed ? e.numbers : e.outer * cut.count(cut.own(i)) * e.inner;
      for (extent k = 0; k < routes.came.size(); ++k)
        std::copy_n(arrays[e.from[i]].data() + routes.came[k] * n, n,
                    arrays[e.to[i]].data() + k * n);
    }
  }

  void send_rows(const stage_exchange& e) {
    std::vector<T> out(routes.sent.size() * e.numbers);
    for (extent k = 0; k < routes.sent.size(); ++k)
      std::copy_n(arrays[e.from[0]].data() + routes.sent[k] * e.numbers, e.numbers,
                  out.data() + k * e.numbers);
    ranks.all_to_all(std::span<const T>(out), times(routes.to, e.numbers),
                     std::span(arrays[e.to[0]]).first(routes.came.size() * e.numbers),
                     times(routes.from, e.numbers));
  }

  // Of rows along the label, what was selected; the rest is 0.
  void send_sampled(const stage_exchange& e) {
    std::vector<T> out, in(routes.came_entries.size() * e.inner);
    for (const auto& s : routes.sent_entries) {
      const auto* const from =
          arrays[e.from[0]].data() + (s.token * cut.length + s.column) * e.inner;
      out.insert(out.end(), from, from + e.inner);
    }
    ranks.all_to_all(std::span<const T>(out), times(routes.entries_to, e.inner), std::span(in),
                     times(routes.entries_from, e.inner));
    for (extent i = 0; i < e.to.size(); ++i)
      std::fill_n(arrays[e.to[i]].begin(), routes.came.size() * cut.count(cut.own(i)) * e.inner,
                  T{0});
    for (extent k = 0; k < routes.came_entries.size(); ++k) {
      const auto [part, column] = part_of(cut, routes.came_entries[k].column);
      const extent row = routes.came_entries[k].token * cut.count(cut.own(part)) + column;
      std::copy_n(in.data() + k * e.inner, e.inner, arrays[e.to[part]].data() + row * e.inner);
    }
  }

  // The owner adds up what comes back as reduce_scatter does: what did not travel is 0.
  void bring_back(const stage_exchange& e) {
    const std::vector<extent> counts = times(routes.to, e.numbers);
    std::vector<T> in(sum(counts));
    ranks.all_to_all(std::span<const T>(arrays[e.from[0]]).first(routes.came.size() * e.numbers),
                     times(routes.from, e.numbers), std::span(in), counts);
    const extent own = tokens.own() * e.numbers;
    std::vector<T> rows(ranks.size() * own, T{0});
    extent k = 0;
    for (extent r = 0; r < ranks.size(); ++r)
      for (extent t = 0; t < routes.to[r]; ++t, ++k)
        std::copy_n(in.data() + k * e.numbers, e.numbers,
                    rows.data() + r * own + routes.sent[k] * e.numbers);
    fold_rows(std::span(rows), own, fold::sum);
    std::copy_n(rows.data(), own, arrays[e.to[0]].data());
  }
};

}  // namespace fmoe::detail
