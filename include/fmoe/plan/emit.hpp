// SPDX-License-Identifier: MIT
// Emit: the program, its loops and its placement become the steps of a plan.
#pragma once

#include <fmoe/plan/exclude.hpp>
#include <fmoe/plan/layout.hpp>

namespace fmoe::plan {

class emitter : plan_layout {
 public:
  emitter(const planner::program& p, tiling t, const planner::plan_options& options)
      : plan_layout(p, std::move(t), options) {
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

 private:
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

  void emit(const planner::gemm_op&, const operation& o, const stream_loop* l,
            vector<step>& steps) {
    const use &a = o.in[0], &w = o.in[1];
    const axis_labels rows =
        planner::labels_where(o.out.labels, [&](char c) { return has(a.labels, c); });
    const axis_labels summed = a.labels.substr(rows.size());
    const axis_labels columns = o.out.labels.substr(rows.size());
    const axis_labels batch = planner::labels_where(rows, [&](char c) { return has(w.labels, c); });
    gemm_step s;
    s.text = text(o);
    s.K = program_.size_of(a, summed);
    s.N = program_.size_of(o.out, columns);
    vector<axis_stride> depth = axes(w, summed);
    for (extent k = 0; k < depth.size(); ++k)
      depth[k].length = program_.extent_of(a, summed[k]);  // without the row of a bias
    const axis_labels batches = o.in_group() ? o.expert + batch : batch;
    if (o.in_group()) s.expert_step = program_.size_of(w, batch);
    s.weight = weight({.storage = storage_of(w.value),
                       .batch = axes(w, batches),
                       .depth = std::move(depth),
                       .columns = axes(w, columns),
                       .batches = program_.size_of(w, batches),
                       .K = s.K,
                       .N = s.N,
                       .rounding = rounding_of(program_, options_, o)});
    const bool makes_chunks = cuts_result(o, l);
    s.a = makes_chunks ? whole(a.value) : in_loop(a.value, l);
    s.c = makes_chunks ? in_loop(o.out.value, l) : whole(o.out.value);
    s.rows = {{0, 0, 0}};
    for (const char c : rows) {
      vector<gemm_step::row> more;
      for (const auto& r : s.rows)
        for (extent i = 0; i < program_.extent_of(a, c); ++i)
          more.push_back({r.a + i * program_.stride(a, c), r.c + i * program_.stride(o.out, c),
                          has(batch, c) ? r.weight * program_.extent_of(a, c) + i : r.weight});
      s.rows = std::move(more);
    }
    if (makes_chunks) s.n_step = s.N / std::max<extent>(1, l->length);
    else if (l != nullptr) s.k_step = s.K / std::max<extent>(1, l->length);
    s.accumulate = o.start != value_id::none;
    s.epilogues = epilogues(o, l);
    steps.push_back(std::move(s));
  }

  // A product that no pass has matched runs as the most general kind.
  void emit(const planner::product_op&, const operation& o, const stream_loop* l,
            vector<step>& steps) {
    emit(planner::batched_op{}, o, l, steps);
  }

  void emit(const planner::batched_op&, const operation& o, const stream_loop* l,
            vector<step>& steps) {
    const use &a = o.in[0], &b = o.in[1];
    batched_step s{.text = text(o),
                   .a = whole(a.value),
                   .b = whole(b.value),
                   .c = whole(o.out.value),
                   .columns = program_[o.out.value].size(),
                   .epilogues = epilogues(o, l)};
    for (const char c : o.out.labels) s.out.push_back(nest(&a, &b, o.out, c));
    for (const char c : planner::groups_of(o).summed) s.summed.push_back(nest(&a, &b, o.out, c));
    if (l != nullptr) {
      const bool makes = cuts_result(o, l);
      s.axis = makes ? batched_step::cut::out : batched_step::cut::summed;
      const nest_axis& cut = makes ? s.out[0] : s.summed[0];
      if (chunked_in(tiling_.loops, a.value) == nullptr) s.a.step = cut.a;
      if (chunked_in(tiling_.loops, b.value) == nullptr) s.b.step = cut.b;
    }
    steps.push_back(std::move(s));
  }

  void emit(const planner::reduce_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use& a = o.in[0];
    reduce_step s = reduction(o, a);
    s.epilogues = epilogues(o, nullptr);
    axis_labels seen = o.out.labels;
    for (const char c : a.labels) {
      if (has(seen, c)) continue;
      seen += c;
      s.summed.push_back(nest(&a, nullptr, o.out, c));
    }
    steps.push_back(std::move(s));
  }

  void emit(const planner::token_sum_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use& a = o.in[0];
    const use* b = o.in.size() > 1 ? &o.in[1] : nullptr;
    if (program_[a.value].selection) {
      steps.push_back(selection_sum(o));
      make_sparse(get<selection_sum_step>(steps.back()), o.out.value);
      return;
    }
    token_sum_step s{.text = text(o),
                     .a = whole(a.value),
                     .b = b != nullptr ? whole(b->value) : view{},
                     .c = whole(o.out.value),
                     .block = options_.sum_block};
    for (const char c : o.out.labels) s.out.push_back(nest(&a, b, o.out, c));
    axis_labels seen = o.out.labels;
    for (const use& u : o.in)
      for (const char c : u.labels) {
        if (has(seen, c)) continue;
        s.summed.push_back(nest(&a, b, o.out, c));
        seen += c;
      }
    needs_arena(token_product_room::size(s));
    steps.push_back(std::move(s));
  }

  void emit(const planner::screen_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use &a = o.in[0], &w = o.in[1];
    const axis_labels columns =
        planner::labels_where(w.labels, [&](char c) { return !has(a.labels, c); });
    screen_step s{.text = text(o),
                  .rule = kind.rule,
                  .a = whole(a.value),
                  .selection = whole(o.out.value),
                  .scratch = whole(o.in[2].value),
                  .K = program_.size_of(a, a.labels),
                  .N = program_.size_of(w, columns),
                  .keep = program_[o.out.value].keep,
                  .epilogues = epilogues(o, nullptr)};
    s.weight = weight({.storage = storage_of(w.value),
                       .depth = axes(w, a.labels),
                       .columns = axes(w, columns),
                       .batches = 1,
                       .K = s.K,
                       .N = s.N,
                       .screened = true});
    steps.push_back(std::move(s));
  }

  void emit(const planner::gather_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use &selection = o.in[0], &rows = o.in[1];
    const value& s = program_[selection.value];
    steps.push_back(gather_step{.text = text(o),
                                .selection = whole(selection.value),
                                .table = table(rows.value),
                                .c = whole(o.out.value),
                                .rows = s.rows(),
                                .keep = s.keep,
                                .N = program_[o.out.value].size(),
                                .table_row = table_row(selection, rows),
                                .epilogues = epilogues(o, nullptr)});
  }

  void emit(const planner::rescale_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& s = program_[o.in[0].value];
    steps.push_back(rescale_step{.text = text(o),
                                 .selection = whole(o.in[0].value),
                                 .factors = whole(o.in[1].value),
                                 .c = whole(o.out.value),
                                 .rows = s.rows(),
                                 .keep = s.keep,
                                 .table_row = table_row(o.in[0], o.in[1])});
  }

  void emit(const planner::sample_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use &selection = o.in[0], &x = o.in[1], &rows = o.in[2];
    const value& s = program_[selection.value];
    steps.push_back(sample_step{.text = text(o),
                                .selection = whole(selection.value),
                                .x = whole(x.value),
                                .table = table(rows.value),
                                .c = whole(o.out.value),
                                .rows = s.rows(),
                                .keep = s.keep,
                                .K = program_[x.value].size(),
                                .table_row = table_row(selection, rows),
                                .multiplies = kind.multiplies,
                                .weighs = kind.weighs,
                                .epilogues = epilogues(o, nullptr)});
  }

  void emit(const planner::slice_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use& a = o.in[0];
    reduce_step s = reduction(o, a);
    s.a.offset = kind.first * program_.stride(a, a.labels[kind.axis]);
    steps.push_back(std::move(s));
  }

  // The two lists lie behind each other: each is a sum along one axis of the s x s pairs.
  void emit(const planner::unpair_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use& a = o.in[0];
    const extent s = program_[o.out.value].shape.back();
    if (program_[a.value].selection) {
      const value& pairs = program_[a.value];
      steps.push_back(unpair_step{.text = text(o),
                                  .selection = whole(a.value),
                                  .c = whole(o.out.value),
                                  .rows = pairs.rows(),
                                  .keep = pairs.keep,
                                  .list = s});
      return;
    }
    const axis_labels lead = a.labels.substr(0, a.labels.size() - 1);
    for (const extent list : {extent{0}, extent{1}}) {
      reduce_step sum{.text = text(o), .a = whole(a.value), .c = whole(o.out.value)};
      sum.c.offset = list * s;
      for (const char c : lead) sum.out.push_back(nest(&a, nullptr, o.out, c));
      const nest_axis first{s, s, 0, 1}, second{s, 1, 0, 1};
      sum.out.push_back(list == 0 ? first : second);
      sum.summed = {list == 0 ? second : first};
      sum.summed[0].c = 0;
      steps.push_back(std::move(sum));
    }
  }

  void emit(const planner::row_function_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& in = program_[o.in[0].value];
    row_function_step s{.text = text(o),
                        .fn = kind.fn,
                        .parameter = kind.parameter,
                        .groups = kind.groups,
                        .a = whole(o.in[0].value),
                        .c = whole(o.out.value),
                        .rows = in.rows(),
                        .columns = in.shape.back()};
    if (o.in.size() > 1) {
      s.bound = whole(o.in[1].value);
      s.bounds = program_[o.in[1].value].size();
    }
    steps.push_back(std::move(s));
  }

  void emit(const planner::row_norm_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& in = program_[o.in[0].value];
    steps.push_back(row_norm_step{.text = text(o),
                                  .which = kind.which,
                                  .a = whole(o.in[0].value),
                                  .c = whole(o.out.value),
                                  .rows = in.rows(),
                                  .columns = in.shape.back()});
  }

  void emit(const planner::exclude_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    exclusion made(program_, o);
    exclude_step s = made.take();
    s.text = text(o);
    s.c = whole(o.out.value);
    for (const use* u : made.operands) s.operands.push_back(whole(u->value));
    steps.push_back(std::move(s));
  }

  void emit(const planner::concat_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    extent offset = 0;
    const char axis = o.out.labels[kind.axis];
    for (const use& a : o.in) {
      reduce_step s{.text = text(o), .a = whole(a.value), .c = whole(o.out.value)};
      s.c.offset = offset * program_.stride(o.out, axis);
      for (const char c : o.out.labels) {
        s.out.push_back(nest(&a, nullptr, o.out, c));
        s.out.back().length = program_.extent_of(a, c);
      }
      offset += program_.extent_of(a, axis);
      steps.push_back(std::move(s));
    }
  }

  void emit(const planner::select_op& kind, const operation& o, const stream_loop* l,
            vector<step>& steps) {
    if (is_barrier(o)) return steps.push_back(expert_choice(kind, o));
    const value& out = program_[o.out.value];
    const bool has_lists = takes_two_rows(kind.rule.what);
    steps.push_back(select_step{.text = text(o),
                                .rule = kind.rule,
                                .a = in_loop(o.in[0].value, l),
                                .ranked = o.in.size() > 1 ? whole(o.in[1].value) : view{},
                                .selection = whole(o.out.value),
                                .rows = out.rows(),
                                .columns = out.shape.back(),
                                .keep = out.keep,
                                .list = has_lists ? program_[o.in[0].value].shape.back() : 0});
  }

  void emit(const planner::pick_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const use& a = o.in[0];
    pick_step s{.text = text(o), .a = whole(a.value), .c = whole(o.out.value)};
    if (o.expert != 0) (kind.by_place ? s.place : s.a.expert) = program_.stride(a, o.expert);
    const bool neighbours = o.expert == 0 || a.labels[0] == o.expert;
    if (neighbours) s.out = {{program_[o.out.value].size(), 1, 0, 1}};
    else
      for (const char c : o.out.labels) s.out.push_back(nest(&a, nullptr, o.out, c));
    steps.push_back(std::move(s));
  }

  void emit(const planner::keep_op&, const operation& o, const stream_loop*, vector<step>& steps) {
    const extent keep = program_[o.in[1].value].keep;
    steps.push_back(keep_step{.text = text(o),
                              .a = whole(o.in[0].value),
                              .selection = whole(o.in[1].value),
                              .c = whole(o.out.value),
                              .columns = program_[o.in[0].value].size(),
                              .keep = keep});
  }

  void emit(const planner::take_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    steps.push_back(taken(o, kind.spreads));
  }
  void emit(const planner::weigh_op&, const operation& o, const stream_loop*, vector<step>& steps) {
    steps.push_back(weighed(o));
  }
  void emit(const planner::reweigh_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    steps.push_back(reweighed(kind, o));
  }
  void emit(const planner::expert_sum_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    steps.push_back(expert_sum(o));
  }

  void emit(const planner::put_op&, const operation& o, const stream_loop*, vector<step>& steps) {
    steps.push_back(put_step{.text = text(o),
                             .a = whole(o.in[0].value),
                             .selection = whole(o.in[1].value),
                             .c = whole(o.out.value),
                             .columns = program_[o.out.value].size(),
                             .keep = program_[o.in[1].value].keep});
  }

  void emit(const planner::pointwise_op&, const operation& o, const stream_loop* l,
            vector<step>& steps) {
    const extent columns = program_[o.out.value].size();
    steps.push_back(
        pointwise_step{.text = text(o),
                       .a = in_loop(o.in[0].value, l),
                       .c = in_loop(o.out.value, l),
                       .columns = columns,
                       .column_step = l != nullptr ? columns / std::max<extent>(1, l->length) : 0,
                       .epilogues = epilogues(o, l)});
  }

  void emit(const planner::append_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& out = program_[o.out.value];
    steps.push_back(append_step{.text = text(o),
                                .a = whole(o.in[0].value),
                                .c = whole(o.out.value),
                                .rows = out.rows(),
                                .columns = out.shape.back() - 1});
  }

  void emit(const planner::kept_op& kind, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& out = program_[o.out.value];
    steps.push_back(kept_step{.text = text(o),
                              .what = kind.what,
                              .selection = whole(o.in[0].value),
                              .c = whole(o.out.value),
                              .rows = out.rows(),
                              .keep = out.shape.back()});
  }

  void emit(const planner::expand_op&, const operation& o, const stream_loop*,
            vector<step>& steps) {
    const value& out = program_[o.out.value];
    steps.push_back(expand_step{.text = text(o),
                                .selection = whole(o.in[0].value),
                                .c = whole(o.out.value),
                                .rows = out.rows(),
                                .columns = out.shape.back(),
                                .keep = out.keep});
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

  // The steps of one operation, by its kind. A loop cuts products, pointwise operations and
  // selections; every other kind stands outside of loops.
  void emit(const operation& o, const stream_loop* l, vector<step>& steps) {
    visit([&](const auto& kind) { emit(kind, o, l, steps); }, o.what);
  }

  vector<value_id> made_in_stage_;  // by the operations of the last stage
};

}  // namespace fmoe::plan
