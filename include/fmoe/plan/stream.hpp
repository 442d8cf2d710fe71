// SPDX-License-Identifier: MIT
// Stream: handles an intermediate that is too large for L2 and whose readers all sum over its first
// axis, select along it, or make another such value. It is made and used in chunks of that axis, so
// that only a chunk of it exists. Sums continue in the same order, so no bit changes.
#pragma once

#include <optional>

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/options.hpp>
#include <fmoe/planner/program_index.hpp>

namespace fmoe::plan {

struct stream_loop {                 // the operations run once for each chunk
  char label;                        // the name that the first producer gives it
  extent length, chunk;              // in units of the axis
  vector<extent> operations;         // in order
  vector<planner::value_id> values;  // these exist only as chunks
};

class stream_search {
  using operation = planner::operation;
  using value_id = planner::value_id;

 public:
  stream_search(const planner::program& p, const planner::program_index& index,
                const planner::plan_options& o, extent tile)
      : program_(p),
        index_(index),
        options_(o),
        tile_(tile),
        taken_(p.operations.size(), false) {}

  // Returns the loop for the result of an operation, wherever the operations of the loop stand.
  std::optional<stream_loop> find(extent maker) const {
    const value_id v = op(maker).out.value;
    const planner::value& x = program_[v];
    if (x.size() * tile_ * options_.element_bytes <= options_.shape.streamed) return std::nullopt;
    if (!free(maker, maker) || !makes(op(maker))) return std::nullopt;
    stream_loop loop{op(maker).out.labels[0], x.shape[0], 0, {maker}, {v}};
    if (!add_readers(loop)) return std::nullopt;
    add_makers(loop);
    // A sum is complete only at the end of the loop, and does not continue in another loop.
    for (const extent k : loop.operations)
      for (const extent j : loop.operations)
        if (!contains(loop.values, op(j).out.value) && program_.reads(op(k), op(j).out.value) > 0)
          return std::nullopt;
    std::ranges::sort(loop.operations);
    loop.chunk = std::min(loop.length, chunk_of(loop));
    return loop;
  }

  // True if no operation reads a result of the loop before its end.
  bool in_order(const stream_loop& loop) const {
    for (extent k = loop.operations.front(); k < loop.operations.back(); ++k)
      if (!contains(loop.operations, k) && reads_result(op(k), loop)) return false;
    return true;
  }

  bool reads_result(const operation& o, const stream_loop& loop) const {
    return std::ranges::any_of(loop.operations,
                               [&](extent k) { return program_.reads(o, op(k).out.value) > 0; });
  }

  void take(const stream_loop& loop) {
    for (const extent k : loop.operations) taken_[k] = true;
  }

  template <class T>
  static bool contains(const vector<T>& list, T x) {
    return std::ranges::count(list, x) > 0;
  }

 private:
  const operation& op(extent i) const { return program_.operations[i]; }

  // Returns the elements of v for each unit of its first axis.
  extent inner(value_id v) const {
    const auto& shape = program_[v].shape;
    return element_count(std::span(shape).subspan(1));
  }

  // True if the operation may join a loop that contains `other`.
  bool free(extent k, extent other) const {
    if (op(k).in_group() || taken_[k]) return false;
    return index_.stage(k) == index_.stage(other);
  }

  // True if the operation can make its result in chunks of the first axis.
  bool makes(const operation& o) const {
    const planner::value& v = program_[o.out.value];
    const bool is_row = v.per_token() && !v.selection && !v.shape.empty();
    if (!is_row || o.start != value_id::none) return false;
    if (index_.is_result(o.out.value)) return false;
    if (planner::is<planner::gemm_op>(o)) return !has(o.in[0].labels, o.out.labels[0]);
    return planner::is<planner::batched_op>(o) ||
           (planner::is<planner::pointwise_op>(o) && !program_[o.in[0].value].leaf);
  }

  // Returns the position of v among the operands, unless the operation reads it elsewhere, too.
  std::optional<extent> place_of(const operation& o, value_id v) const {
    if (program_.reads(o, v) != 1) return {};
    for (extent i = 0; i < o.in.size(); ++i)
      if (o.in[i].value == v) return i;
    return {};
  }

  // True if the operation can use v in such chunks.
  bool takes(const operation& o, value_id v) const {
    const auto place = place_of(o, v);
    if (!place) return false;
    const axis_labels& labels = o.in[*place].labels;
    if (planner::is<planner::batched_op>(o))  // chunks of the outermost loop of the sum
      return planner::groups_of(o).summed.find(labels[0]) == 0 &&
             std::ranges::count(labels, labels[0]) == 1;
    if (*place != 0) return false;
    if (planner::is<planner::select_op>(o))
      return labels.size() == 1 && o.in.size() == 1 &&
             selects_chunk_by_chunk(planner::as<planner::select_op>(o).rule);
    return planner::is<planner::gemm_op>(o) && !has(o.out.labels, labels[0]);
  }

  // Can a selection be made of a row that comes in chunks?
  static bool selects_chunk_by_chunk(const selection_rule& rule) {
    using enum selection_rule::kind;
    const bool needs_all = rule.what == top_p || rule.what == expert_choice;
    return !needs_all && rule.weights != weighting::softmax_of_all;
  }

  // True if the first axis of the result is the first one of this operand.
  static bool runs_along(const operation& o, const planner::use& u) {
    if (!planner::is<planner::batched_op>(o) || u.labels.empty()) return false;
    return u.labels[0] == o.out.labels[0] && std::ranges::count(u.labels, u.labels[0]) == 1;
  }

  // True if the operation can make a chunk of its result from a chunk of v.
  bool hands_on(const operation& o, value_id v) const {
    const auto place = place_of(o, v);
    if (!place || !makes(o)) return false;
    return runs_along(o, o.in[*place]) || (planner::is<planner::pointwise_op>(o) && *place == 0);
  }

  // Adds all operations that read the values of the loop, all the way down. Returns false if one
  // needs a whole value.
  bool add_readers(stream_loop& loop) const {
    for (extent i = 0; i < loop.values.size(); ++i) {
      const value_id v = loop.values[i];
      for (const extent k : index_.readers(v)) {
        if (contains(loop.operations, k) || !free(k, loop.operations[0])) return false;
        if (hands_on(op(k), v)) loop.values.push_back(op(k).out.value);
        else if (!takes(op(k), v)) return false;
        loop.operations.push_back(k);
      }
    }
    return true;
  }

  bool carries(value_id v, value_id like) const {
    return v != like && program_[v].shape == program_[like].shape;
  }

  // Adds the operations that make values only for this loop, all the way up.
  void add_makers(stream_loop& loop) const {
    for (extent i = 0; i < loop.operations.size(); ++i) {
      const operation& o = op(loop.operations[i]);
      if (!contains(loop.values, o.out.value)) continue;
      vector<value_id> from;
      for (const planner::use& u : o.in) {
        const bool is_carried =
            planner::is<planner::pointwise_op>(o) && carries(u.value, o.out.value);
        if (is_carried || runs_along(o, u)) from.push_back(u.value);
      }
      for (const planner::pass& p : o.passes)
        if (p.other != value_id::none && carries(p.other, o.out.value)) from.push_back(p.other);
      for (const value_id w : from) {
        const planner::value& x = program_[w];
        const auto q = index_.producer(w);
        const bool is_row = q && x.per_token() && !x.selection;
        const bool is_only_here = index_.uses(w) == 1 && !contains(loop.values, w);
        if (!is_row || !is_only_here) continue;
        if (!makes(op(*q)) || !free(*q, loop.operations[0])) continue;
        loop.operations.push_back(*q);
        loop.values.push_back(w);
      }
    }
  }

  // A chunk is whole panels for products that make it, and whole blocks of the sum for products
  // that sum it.
  extent chunk_of(const stream_loop& loop) const {
    extent widest = 1;
    for (const value_id v : loop.values) widest = std::max(widest, inner(v));
    const auto fits = [&](extent unit) {
      return std::ranges::all_of(loop.operations, [&](extent k) {
        const operation& o = op(k);
        if (!planner::is<planner::gemm_op>(o)) return true;
        const bool made = contains(loop.values, o.out.value);
        return unit * inner(made ? o.out.value : o.in[0].value) %
                   (made ? options_.kernels.panel : options_.sum_block) ==
               0;
      });
    };
    extent unit = 1;
    while (!fits(unit)) ++unit;
    const extent most = std::max(unit, options_.shape.chunk / widest / unit * unit);
    return round_up(divide_up(loop.length, divide_up(loop.length, most)), unit);
  }

  const planner::program& program_;
  const planner::program_index& index_;
  const planner::plan_options& options_;
  extent tile_;
  vector<bool> taken_;
};

// Returns the loops for a tile of this many tokens.
inline vector<stream_loop> streams(const planner::program& p, const planner::plan_options& o,
                                   extent tile) {
  vector<stream_loop> loops;
  const planner::program_index index(p);
  stream_search search(p, index, o, tile);
  for (extent k = 0; k < p.operations.size(); ++k)
    if (auto loop = search.find(k); loop && search.in_order(*loop)) {
      search.take(*loop);
      loops.push_back(std::move(*loop));
    }
  return loops;
}

// Brings the operations of a loop together if others that read its results stand between them:
// those move behind the loop.
inline void gather_loops(planner::program& p, const planner::plan_options& o) {
  planner::program_index index(p);
  const stream_search search(p, index, o, o.shape.tile);
  for (const planner::value_id v : p.values.ids()) {
    const auto maker = index.producer(v);
    if (!maker) continue;
    const auto loop = search.find(*maker);
    if (!loop || search.in_order(*loop)) continue;
    const extent first = loop->operations.front(), end = loop->operations.back() + 1;
    const auto passed = std::span(p.operations).subspan(first, end - first);
    if (std::ranges::any_of(passed, &planner::operation::in_group)) continue;
    vector<planner::operation> before, inside, behind;
    bool possible = true;
    for (extent k = first; k < end; ++k) {
      const planner::operation& x = p.operations[k];
      const bool in_loop = stream_search::contains(loop->operations, k);
      const bool late = std::ranges::any_of(
          behind, [&](const planner::operation& y) { return p.reads(x, y.out.value) > 0; });
      possible = possible && !(in_loop && late);
      (in_loop ? inside : late || search.reads_result(x, *loop) ? behind : before).push_back(x);
    }
    if (!possible) continue;
    auto at = std::ranges::copy(before, passed.begin()).out;
    at = std::ranges::copy(inside, at).out;
    std::ranges::copy(behind, at);
    index = planner::program_index(p);
  }
}

}  // namespace fmoe::plan
