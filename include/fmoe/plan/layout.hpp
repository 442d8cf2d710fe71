// SPDX-License-Identifier: MIT
// Layout: where the values of a program lie in a plan, and how its steps see them.
#pragma once

#include <fmoe/base/numbers_by_hash.hpp>
#include <fmoe/plan/plan.hpp>
#include <fmoe/plan/tile.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::plan {

class plan_layout {
 protected:
  using operation = planner::operation;
  using use = planner::use;
  using value = planner::value;
  using value_id = planner::value_id;

  plan_layout(const planner::program& p, tiling t, const planner::plan_options& options)
      : program_(p),
        tiling_(std::move(t)),
        options_(options) {
    for (const value_id v : p.values.ids()) plan_.storages.push_back(row_of(v));
  }

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

  // The token numbers that it sorts take one more element for each token.
  expert_choice_step expert_choice(const planner::select_op& kind, const operation& o) {
    expert_choice_step s{.text = text(o),
                         .rule = kind.rule,
                         .scores = whole(o.in[0].value),
                         .ranked = whole(o.in[1].value),
                         .selection = whole(o.out.value),
                         .experts = program_[o.out.value].keep,
                         .scratch = plan_.call};
    plan_.call += options_.kernels.cache_line / options_.element_bytes;
    return s;
  }

  // Each task sorts a block's entries in its arena and keeps a row there.
  selection_sum_step selection_sum(const operation& o) {
    const use& chosen = o.in[0];
    const bool has_rows = o.in.size() > 1 && !o.in[1].labels.empty();
    selection_sum_step s{
        .text = text(o),
        .selection = whole(chosen.value),
        .b = o.in.size() > 1 ? whole(o.in[1].value) : view{},
        .c = whole(o.out.value),
        .rows = program_[chosen.value].rows(),
        .own_tables = chosen.labels.size() > 1 && has(o.out.labels, chosen.labels[0]),
        .experts = program_[chosen.value].shape.back(),
        .keep = program_[chosen.value].keep,
        .N = o.in.size() > 1 ? program_[o.in[1].value].size() : 1,
        .expert_stride = program_.stride(o.out, chosen.labels.back()),
        .block = options_.sum_block};
    if (s.own_tables) s.experts *= s.rows;
    if (has_rows) s.column_stride = program_.stride(o.out, o.in[1].labels.back());
    needs_arena(selection_sum_scratch(s, options_.element_bytes));
    return s;
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

  take_step taken(const operation& o, bool spreads) {
    const use &chosen = o.in[0], &a = o.in[1];
    const value& s = program_[chosen.value];
    take_step t{.text = text(o),
                .selection = whole(chosen.value),
                .a = whole(a.value),
                .c = whole(o.out.value),
                .rows = s.rows(),
                .keep = s.keep,
                .entry = nest(&a, nullptr, o.out, chosen.labels.back()),
                .columns = program_[o.out.value].size(),
                .spreads = spreads};
    if (chosen.labels.size() > 1) t.row = nest(&a, nullptr, o.out, chosen.labels[0]);
    for (const char c : o.out.labels)
      if (!has(chosen.labels, c)) t.out.push_back(nest(&a, nullptr, o.out, c));
    return t;
  }

  weigh_step weighed(const operation& o) {
    const value& s = program_[o.out.value];
    return {.text = text(o),
            .selection = whole(o.in[0].value),
            .a = whole(o.in[1].value),
            .c = whole(o.out.value),
            .rows = s.rows(),
            .keep = s.keep};
  }
  reweigh_step reweighed(const planner::reweigh_op& kind, const operation& o) {
    const value& s = program_[o.out.value];
    const bool has_scores = o.in.size() > 1;
    return {.text = text(o),
            .selection = whole(o.in[0].value),
            .scores = has_scores ? whole(o.in[1].value) : view{},
            .c = whole(o.out.value),
            .rows = s.rows(),
            .keep = s.keep,
            .columns = has_scores ? s.shape.back() : 0,
            .weights = kind.weights,
            .keeps_zeros = kind.keeps_zeros};
  }

  // The axis of experts is not among those of the nest, since each entry is one operand by itself.
  expert_sum_step expert_sum(const operation& o) {
    const use &chosen = o.in[0], &a = o.in[1];
    const use* b = o.in.size() > 2 ? &o.in[2] : nullptr;
    const char expert = chosen.labels.back();
    const value& s = program_[chosen.value];
    const auto operand = [&](const use& u) {
      const extent places = has(u.labels, expert) ? program_.extent_of(u, expert) : 1;
      return expert_sum_step::operand{whole(u.value), has(u.labels, expert),
                                      program_[u.value].size() / std::max<extent>(1, places)};
    };
    expert_sum_step sum{.text = text(o),
                        .selection = whole(chosen.value),
                        .a = operand(a),
                        .b = b != nullptr ? operand(*b) : expert_sum_step::operand{},
                        .c = whole(o.out.value),
                        .experts = s.shape.back(),
                        .keep = s.keep,
                        .expert_stride = program_.stride(o.out, expert),
                        .block = options_.sum_block};
    const extent blocks = divide_up(plan_.token_count, std::max<extent>(1, sum.block));
    sum.together = sum.block * std::clamp<extent>(blocks, 1, expert_sum_step::most_blocks);
    axis_labels seen(1, expert);
    for (const char c : o.out.labels)
      if (c != expert) {
        sum.out.push_back(nest(&a, b, o.out, c));
        seen += c;
      }
    for (const use& u : std::span(o.in).subspan(1))
      for (const char c : u.labels)
        if (!has(seen, c)) {
          sum.summed.push_back(nest(&a, b, o.out, c));
          seen += c;
        }
    needs_arena(expert_sum_scratch(sum, options_.element_bytes));
    return sum;
  }

  const planner::program& program_;
  tiling tiling_;
  const planner::plan_options& options_;
  step_plan plan_;
  numbers_by_hash weights_;  // by storage
};

}  // namespace fmoe::plan
