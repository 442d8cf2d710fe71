// SPDX-License-Identifier: MIT
// Emit: the program, its loops and its placement become the steps of a plan.
#pragma once

#include <fmoe/base/numbers_by_hash.hpp>
#include <fmoe/plan/exclude.hpp>
#include <fmoe/plan/plan.hpp>
#include <fmoe/plan/rounding.hpp>
#include <fmoe/plan/tile.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::plan {

class emitter {
  using operation = planner::operation;
  using use = planner::use;
  using value = planner::value;
  using value_id = planner::value_id;

 public:
  emitter(const planner::program& p, tiling t, const planner::plan_options& options)
      : program_(p),
        tiling_(std::move(t)),
        options_(options) {
    for (const value_id v : p.values.ids()) plan_.storages.push_back(row_of(v));
    plan_.tile = tiling_.tile;
    plan_.least_tile = tiling_.least;
    plan_.arena = tiling_.places.arena;
    plan_.rounded = tiling_.places.rounded;
    plan_.call = tiling_.places.call;
    plan_.once = tiling_.places.once;
    plan_.token_count = p.token_count;
    plan_.tokens = p.tokens;
    plan_.has_plain_sums = options.has_plain_sums;
    plan_.sum_block = options.sum_block;
    plan_.own_ahead = options.shape.own_ahead;
    plan_.panel = options.kernels.panel;
    plan_.side_by_side = options.shape.side_by_side;
    plan_.l2 = options.on.l2;
    for (const value_id r : p.results) plan_.results.push_back({p[r].shape, p[r].per_token()});
    for (extent k = 0; k < p.operations.size(); ++k) {
      const operation& o = p.operations[k];
      const stream_loop* l = loop_of(tiling_.loops, k);
      const bool is_constant = p[o.out.value].is_constant();
      auto& steps = is_constant ? plan_.prologue : plan_.steps;
      if (!is_constant) enter_stage(o);
      if (o.in_group()) {
        if (last_of_group(p, k) == k) emit_group(o.group, steps);
      } else if (l == nullptr) {
        emit(o, nullptr, steps);
      } else if (l->operations.back() == k) {
        loop_step s{.label = l->label, .length = l->length, .chunk = l->chunk, .body = {}};
        for (const extent q : l->operations) emit(p.operations[q], l, s.body);
        steps.push_back(std::move(s));
      }
      if (!is_constant) plan_.stages.back().end = plan_.steps.size();
    }
  }

  step_plan take() { return std::move(plan_); }

  // What the rules of operations are made of.
  const planner::program& program() const { return program_; }
  const planner::plan_options& options() const { return options_; }
  const value& value_of(const use& u) const { return program_[u.value]; }
  row_rounding rounding(const operation& o) const { return rounding_of(program_, options_, o); }
  exclusion exclusion_of(const operation& o) const { return {program_, o}; }
  bool is_chunked(value_id v) const { return chunked_in(tiling_.loops, v) != nullptr; }

  static extent storage_of(value_id v) { return static_cast<extent>(v); }

  // A value as it is stored.
  view whole(value_id v) {
    plan_.storages[storage_of(v)].in_place = true;
    return {.storage = storage_of(v)};
  }

  // The rows that a gather reads: a leaf of 16 bits may stay so.
  view table(value_id v) {
    plan_.storages[storage_of(v)].table = true;
    return {.storage = storage_of(v)};
  }

  // A value as the loop sees it, if there is one: a whole value moves with the loop that cuts its
  // first axis, and a chunk has a fixed place.
  view in_loop(value_id v, const stream_loop* l) {
    view r = whole(v);
    if (l == nullptr || chunked_in(tiling_.loops, v) != nullptr) return r;
    const value& x = program_[v];
    const bool is_cut = !x.selection && !x.shape.empty() && x.shape[0] == l->length;
    if (is_cut) r.step = x.size() / std::max<extent>(1, l->length);
    return r;
  }

  vector<epilogue> epilogues(const operation& o, const stream_loop* l) {
    vector<epilogue> r;
    const extent width = program_[o.out.value].size();
    for (const planner::pass& p : o.passes) {
      epilogue e{.what = p.what, .f = p.f};
      if (p.by_expert) {
        e.period = program_[p.other].size() / std::max<extent>(1, program_[p.other].shape[0]);
        e.other = whole(p.other);
        e.other.expert = e.period;
      } else if (p.other != value_id::none) {
        e.period = program_[p.other].size();
        const bool is_cut = e.period == width && cuts_result(o, l);
        e.other = is_cut ? in_loop(p.other, l) : whole(p.other);
      }
      r.push_back(e);
    }
    return r;
  }

  // True if the loop cuts the first axis of the operation's result, rather than that of an operand.
  static bool cuts_result(const operation& o, const stream_loop* l) {
    if (l == nullptr) return false;
    return std::ranges::count(l->values, o.out.value) > 0;
  }

  std::string text(operation o) const {
    if (planner::is<planner::screen_op>(o)) o.in.pop_back();  // which is scratch
    return planner::text_of(program_, o);
  }

  vector<axis_stride> axes(const use& u, const axis_labels& labels) const {
    vector<axis_stride> r;
    for (const char c : labels) r.push_back({program_.extent_of(u, c), program_.stride(u, c)});
    return r;
  }

  // Returns the number of a packed weight, which equal ones share.
  extent weight(packed_weight w) {
    const auto is_it = [&](extent i) { return plan_.weights[i] == w; };
    if (const auto known = weights_.find(w.storage, is_it)) return *known;
    weights_.add(w.storage);
    plan_.weights.push_back(std::move(w));
    return plan_.weights.size() - 1;
  }

  nest_axis nest(const use* a, const use* b, const use& c, char label) const {
    const use& known = has(c.labels, label) ? c : has(a->labels, label) ? *a : *b;
    return {program_.extent_of(known, label), program_.stride(*a, label),
            b != nullptr ? program_.stride(*b, label) : 0, program_.stride(c, label)};
  }

  // Returns the elements from the table of one row of selections to the next.
  extent table_row(const use& selection, const use& table) const {
    return selection.labels.size() > 1 && has(table.labels, selection.labels[0])
               ? program_.stride(table, selection.labels[selection.labels.size() - 2])
               : 0;
  }

  // A task needs so many elements for a step that runs once a call.
  void needs_arena(extent elements) {
    plan_.arena = std::max(
        plan_.arena, round_up(elements, options_.kernels.cache_line / options_.element_bytes));
  }

  // A reduction of an operand to a result, with nothing summed yet.
  reduce_step reduction(const operation& o, const use& a) {
    reduce_step s{.text = text(o),
                  .a = whole(a.value),
                  .c = whole(o.out.value),
                  .columns = program_[o.out.value].size()};
    for (const char c : o.out.labels) s.out.push_back(nest(&a, nullptr, o.out, c));
    return s;
  }

  // The memory of the call gets one more element for each token. Returns how many come before it.
  extent room_for_token_numbers() {
    const extent before = plan_.call;
    plan_.call += options_.kernels.cache_line / options_.element_bytes;
    return before;
  }

  // A sum that is a table, whose rows tokens select, has only those rows. Rows of few numbers are
  // not worth it.
  void make_sparse(selection_sum_step& s, value_id v) {
    constexpr extent least = 16;
    const auto result = tiling_.places.shared.output_of(v);
    const auto reads_v = [&](const operation& o) { return planner::program::reads(o, v) > 0; };
    const bool may_be = result && *result < options_.tables.size() && options_.kernels.compacts &&
                        s.N >= least && std::ranges::none_of(program_.operations, reads_v);
    if (!may_be) return;
    const std::span<const extent> table = options_.tables[*result];
    for (extent axis = 0; axis < table.size(); ++axis) {
      const extent inner = element_count(table.subspan(axis + 1));
      if (table[axis] != s.experts || inner != s.expert_stride) continue;
      s.is_sparse = true;
      s.expert_stride = s.N;
      s.column_stride = 1;
      plan_.results[*result].sparse = sparse_result{axis, s.experts, s.N, s.rows * s.keep};
      return;
    }
  }

 private:
  // Returns the storage of a value, which has the value's number.
  storage_row row_of(value_id v) {
    using enum storage_row::kind;
    const value& x = program_[v];
    storage_row s{.where = arena, .elements = x.size()};
    if (x.leaf) {
      const ir::leaf_node& l = program_.leaves[*x.leaf];
      s.where = l.argument >= 0 ? argument : x.per_token() ? input : leaf;
      s.source = l.argument >= 0 ? static_cast<extent>(l.argument) : *x.leaf;
      if (x.per_token()) s.stride = s.where == argument ? staged_stride(v) : s.elements;
    } else if (x.is_constant()) {
      s.where = constant;
      s.offset = plan_.constants;
      const extent size = x.selection ? row_width(program_, options_, {}, v) : s.elements;
      plan_.constants += round_up(size, options_.kernels.cache_line / options_.element_bytes);
    } else if (const auto result = tiling_.places.shared.output_of(v)) {
      s.where = output;
      s.source = *result;
      s.stride = x.per_token() ? staged_stride(v) : 0;
    } else {
      const value_id home = tiling_.places.shared.home_of(v);
      const auto& row = tiling_.places.rows[home];
      s.where = !x.per_token() ? once : tiling_.places.spans[home] ? call : arena;
      s.stride = x.per_token() ? row.width : 0;
      s.offset = row.offset;
      s.listed = tiling_.places.listed[home] != 0;
      s.in_group = x.in_group() && !s.listed;
    }
    return s;
  }

  // The distance of rows that are copied because the caller's are not plain.
  extent staged_stride(value_id v) const { return row_width(program_, options_, {}, v); }

  // The operation's steps belong to the last stage or begin a new one: steps that run once a call
  // read nothing that their own stage makes.
  void enter_stage(const operation& o) {
    const bool per_call = program_.runs_per_call(o);
    const bool waits = per_call && std::ranges::any_of(made_in_stage_, [&](value_id v) {
                         return planner::program::reads(o, v) > 0;
                       });
    const bool fits_last = !plan_.stages.empty() && plan_.stages.back().per_call == per_call;
    if (!fits_last || waits) {
      plan_.stages.push_back({per_call, plan_.steps.size()});
      made_in_stage_.clear();
    }
    made_in_stage_.push_back(o.out.value);
    if (const auto result = tiling_.places.shared.output_of(o.out.value))
      plan_.results[*result].made_in = plan_.stages.size() - 1;
  }

  // Emits all operations of a group; the last one adds the results.
  void emit_group(planner::group_id id, vector<step>& steps) {
    const planner::expert_group& g = program_.groups[id];
    group_step s;
    s.experts = g.experts;
    s.keep = g.keep;
    s.rows = std::min(plan_.tile, options_.shape.group_rows);
    s.scratch = tiling_.places.lists[id];
    for (const operation& o : program_.operations) {
      if (o.group != id) continue;
      emit(o, nullptr, s.body);
      if (!planner::is<planner::put_op, planner::keep_op>(o)) continue;
      s.text = text(o);
      s.selection = whole(g.selection);
      s.c = whole(o.out.value);
      s.columns = program_[o.out.value].size();
      s.epilogues = epilogues(o, nullptr);
    }
    steps.push_back(std::move(s));
  }

  // The steps of one operation. A loop cuts products, pointwise operations and selections; every
  // other kind stands outside of loops.
  void emit(const operation& o, const stream_loop* l, vector<step>& steps) {
    visit([&](const auto& kind) { kind.emit(*this, o, l, steps); }, o.what);
  }

  const planner::program& program_;
  tiling tiling_;
  const planner::plan_options& options_;
  step_plan plan_;
  numbers_by_hash weights_;         // by storage
  vector<value_id> made_in_stage_;  // by the operations of the last stage
};

}  // namespace fmoe::plan
