// SPDX-License-Identifier: MIT
// Emit: the program, its loops and its placement become the steps of a plan.
#pragma once

#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/backend/cpu/plan/tile.hpp>
#include <fmoe/planner/match.hpp>

namespace fmoe::cpu {

class emitter {
 public:
  emitter(const planner::program& p, tiling t, const planner::plan_options& options)
      : program_(p),
        tiling_(std::move(t)),
        options_(options) {
    plan_.tile = tiling_.tile;
    plan_.least_tile = tiling_.least;
    plan_.arena = tiling_.places.arena;
    plan_.call = tiling_.places.call;
    plan_.once = tiling_.places.once;
    plan_.token_count = p.token_count;
    plan_.tokens = p.tokens;
    plan_.sum_block = options.sum_block;
    for (const int r : p.results) plan_.results.push_back({p[r].shape, p[r].per_token()});
    for (int v = 0; v < static_cast<int>(p.values.size()); ++v) storages_of(v);
    for (int k = 0; k < static_cast<int>(p.operations.size()); ++k) {
      const planner::operation& o = p.operations[static_cast<extent>(k)];
      const stream_loop* l = loop_of(tiling_.loops, k);
      const bool is_constant = p[o.out.value].is_constant();
      auto& steps = is_constant ? plan_.prologue : plan_.steps;
      if (!is_constant) enter_stage(o);
      if (o.group >= 0) {
        if (last_of_group(p, k) == k) emit_group(o.group, steps);
      } else if (l == nullptr) {
        emit(o, nullptr, steps);
      } else if (l->operations.back() == k) {
        loop_step s{l->label, l->length, l->chunk, {}};
        for (const int q : l->operations) emit(p.operations[static_cast<extent>(q)], l, s.body);
        steps.push_back(std::move(s));
      }
      if (!is_constant) plan_.stages.back().end = plan_.steps.size();
    }
  }

  plan take() { return std::move(plan_); }

 private:
  // The operation's steps belong to the last stage or begin a new one: steps that run once a call
  // read nothing that their own stage makes.
  void enter_stage(const planner::operation& o) {
    const bool per_call = program_.runs_per_call(o);
    const bool waits = per_call && std::ranges::any_of(made_in_stage_, [&](int v) {
                         return planner::program::reads(o, v) > 0;
                       });
    if (plan_.stages.empty() || plan_.stages.back().per_call != per_call || waits) {
      plan_.stages.push_back({per_call, plan_.steps.size()});
      made_in_stage_.clear();
    }
    made_in_stage_.push_back(o.out.value);
    if (const int result = output_of(program_, o.out.value); result >= 0)
      plan_.results[static_cast<extent>(result)].made_in = plan_.stages.size() - 1;
  }

  void storages_of(int v) {
    using enum storage_row::kind;
    const planner::value& x = program_[v];
    storage_row s{arena, x.size(), 0, 0, -1};
    if (x.leaf >= 0) {
      const ir::leaf_node& l = program_.leaves[static_cast<extent>(x.leaf)];
      s.where = l.argument >= 0 ? argument : x.per_token() ? input : leaf;
      s.source = l.argument >= 0 ? l.argument : x.leaf;
      s.stride = x.per_token() ? s.elements : 0;
    } else if (x.is_constant()) {
      s.where = constant;
      s.offset = plan_.constants;
      const extent size = x.selection ? row_width(program_, options_, {}, v) : s.elements;
      plan_.constants += round_up(size, options_.on.cache_line / options_.element_bytes);
    } else if (const int result = output_of(program_, v); result >= 0) {
      s.where = output;
      s.source = result;
      s.stride = x.per_token() ? s.elements : 0;
    } else {
      const auto home = static_cast<extent>(home_of(program_, v));
      const auto& row = tiling_.places.rows[home];
      s.where = !x.per_token() ? once : tiling_.places.spans[home] ? call : arena;
      s.stride = x.per_token() ? row.width : 0;
      s.offset = row.offset;
    }
    plan_.storages.push_back(s);
  }

  // A whole value moves with the loop that cuts its first axis; a chunk has a fixed place.
  view at(int v, const stream_loop* l) {
    view r{v, 0, 0};
    plan_.storages[static_cast<extent>(v)].in_place = true;
    if (l == nullptr || chunked_in(tiling_.loops, v) != nullptr) return r;
    const planner::value& x = program_[v];
    if (!x.selection && !x.shape.empty() && x.shape[0] == l->length)
      r.step = x.size() / std::max<extent>(1, l->length);
    return r;
  }

  std::vector<epilogue> epilogues(const planner::operation& o, const stream_loop* l) {
    std::vector<epilogue> r;
    const extent width = program_[o.out.value].size();
    for (const planner::pass& p : o.passes) {
      epilogue e{static_cast<epilogue::kind>(p.what), p.fn, p.parameter, {}, 0};
      if (p.other >= 0) {
        e.period = program_[p.other].size();
        if (p.by_expert) {
          const extent experts = std::max<extent>(1, program_[p.other].shape[0]);
          e.period /= experts;
          e.other = at(p.other, nullptr);
          e.other.expert = e.period;
        } else e.other = at(p.other, e.period == width && cuts_result(o, l) ? l : nullptr);
      }
      r.push_back(e);
    }
    return r;
  }

  // True if the loop cuts the first axis of the operation's result, rather than that of an operand.
  static bool cuts_result(const planner::operation& o, const stream_loop* l) {
    if (l == nullptr) return false;
    return std::ranges::count(l->values, o.out.value) > 0;
  }

  std::string text(planner::operation o) const {
    if (o.what == planner::operation::kind::screen) o.in.pop_back();  // which is scratch
    return planner::text_of(program_, o);
  }

  std::vector<axis_stride> axes(const planner::use& u, const std::string& labels) const {
    std::vector<axis_stride> r;
    for (const char c : labels) r.push_back({program_.extent_of(u, c), program_.stride(u, c)});
    return r;
  }

  int weight(packed_weight w) {
    const auto at = std::ranges::find(plan_.weights, w);
    if (at != plan_.weights.end()) return static_cast<int>(at - plan_.weights.begin());
    plan_.weights.push_back(std::move(w));
    return static_cast<int>(plan_.weights.size()) - 1;
  }

  void emit_gemm(const planner::operation& o, const stream_loop* l, std::vector<step>& steps) {
    const planner::use &a = o.in[0], &w = o.in[1];
    const std::string rows =
        planner::labels_where(o.out.labels, [&](char c) { return has(a.labels, c); });
    const std::string summed = a.labels.substr(rows.size());
    const std::string columns = o.out.labels.substr(rows.size());
    const std::string batch = planner::labels_where(rows, [&](char c) { return has(w.labels, c); });
    gemm_step s;
    s.text = text(o);
    s.K = program_.size_of(a, summed);
    s.N = program_.size_of(o.out, columns);
    std::vector<axis_stride> depth = axes(w, summed);
    for (extent k = 0; k < depth.size(); ++k)
      depth[k].length = program_.extent_of(a, summed[k]);  // without the row of a bias
    const std::string batches = o.group < 0 ? batch : o.expert + batch;
    if (o.group >= 0) s.expert_step = program_.size_of(w, batch);
    s.weight = weight({w.value, axes(w, batches), std::move(depth), axes(w, columns),
                       program_.size_of(w, batches), s.K, s.N});
    s.a = at(a.value, cuts_result(o, l) ? nullptr : l);
    s.c = at(o.out.value, cuts_result(o, l) ? l : nullptr);
    s.rows = {{0, 0, 0}};
    for (const char c : rows) {
      std::vector<gemm_step::row> more;
      for (const auto& r : s.rows)
        for (extent i = 0; i < program_.extent_of(a, c); ++i)
          more.push_back({r.a + i * program_.stride(a, c), r.c + i * program_.stride(o.out, c),
                          has(batch, c) ? r.weight * program_.extent_of(a, c) + i : r.weight});
      s.rows = std::move(more);
    }
    if (l != nullptr && cuts_result(o, l)) s.n_step = s.N / std::max<extent>(1, l->length);
    else if (l != nullptr) s.k_step = s.K / std::max<extent>(1, l->length);
    s.accumulate = o.start >= 0;
    s.epilogues = epilogues(o, l);
    steps.push_back(std::move(s));
  }

  nest_axis nest(const planner::use* a, const planner::use* b, const planner::use& c,
                 char label) const {
    const planner::use& known = has(c.labels, label) ? c : has(a->labels, label) ? *a : *b;
    return {program_.extent_of(known, label), program_.stride(*a, label),
            b != nullptr ? program_.stride(*b, label) : 0, program_.stride(c, label)};
  }

  void emit_batched(const planner::operation& o, const stream_loop* l, std::vector<step>& steps) {
    const planner::use &a = o.in[0], &b = o.in[1];
    batched_step s{
        text(o), at(a.value, nullptr),         at(b.value, nullptr), at(o.out.value, nullptr), {},
        {},      program_[o.out.value].size(), epilogues(o, l)};
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

  void emit_reduce(const planner::operation& o, std::vector<step>& steps) {
    const planner::use& a = o.in[0];
    reduce_step s{text(o), at(a.value, nullptr),         at(o.out.value, nullptr), {},
                  {},      program_[o.out.value].size(), epilogues(o, nullptr)};
    for (const char c : o.out.labels) s.out.push_back(nest(&a, nullptr, o.out, c));
    std::string seen;
    for (const char c : a.labels)
      if (!has(o.out.labels, c) && !has(seen, c))
        s.summed.push_back(nest(&a, nullptr, o.out, c)), seen += c;
    steps.push_back(std::move(s));
  }

  void emit_token_sum(const planner::operation& o, std::vector<step>& steps) {
    const planner::use& a = o.in[0];
    const planner::use* b = o.in.size() > 1 ? &o.in[1] : nullptr;
    token_sum_step s{text(o), at(a.value, nullptr), {}, at(o.out.value, nullptr), {}, {}, 0};
    if (b != nullptr) s.b = at(b->value, nullptr);
    s.block = options_.sum_block;
    for (const char c : o.out.labels) s.out.push_back(nest(&a, b, o.out, c));
    std::string seen = o.out.labels;
    for (const planner::use& u : o.in)
      for (const char c : u.labels) {
        if (has(seen, c)) continue;
        s.summed.push_back(nest(&a, b, o.out, c));
        seen += c;
      }
    steps.push_back(std::move(s));
  }

  // Returns the elements from the table of one row of selections to the next.
  extent table_row(const planner::use& selection, const planner::use& table) const {
    return selection.labels.size() > 1 && has(table.labels, selection.labels[0])
               ? program_.stride(table, selection.labels[selection.labels.size() - 2])
               : 0;
  }

  void emit_screen(const planner::operation& o, std::vector<step>& steps) {
    const planner::use &a = o.in[0], &w = o.in[1];
    const std::string columns =
        planner::labels_where(w.labels, [&](char c) { return !has(a.labels, c); });
    screen_step s{text(o),
                  at(a.value, nullptr),
                  at(o.out.value, nullptr),
                  at(o.in[2].value, nullptr),
                  0,
                  program_.size_of(a, a.labels),
                  program_.size_of(w, columns),
                  program_[o.out.value].keep,
                  o.rule,
                  epilogues(o, nullptr)};
    s.weight = weight({w.value, {}, axes(w, a.labels), axes(w, columns), 1, s.K, s.N, true});
    steps.push_back(std::move(s));
  }

  void emit_gather(const planner::operation& o, std::vector<step>& steps) {
    const planner::value& s = program_[o.in[0].value];
    steps.push_back(gather_step{text(o), at(o.in[0].value, nullptr), view{o.in[1].value},
                                at(o.out.value, nullptr), s.rows(), s.keep,
                                program_[o.out.value].size(), table_row(o.in[0], o.in[1]),
                                epilogues(o, nullptr)});
  }

  void emit_rescale(const planner::operation& o, std::vector<step>& steps) {
    const planner::value& s = program_[o.in[0].value];
    steps.push_back(rescale_step{text(o), at(o.in[0].value, nullptr), at(o.in[1].value, nullptr),
                                 at(o.out.value, nullptr), s.rows(), s.keep});
  }

  void emit_sample(const planner::operation& o, std::vector<step>& steps) {
    const planner::value& s = program_[o.in[0].value];
    steps.push_back(sample_step{text(o), at(o.in[0].value, nullptr), at(o.in[1].value, nullptr),
                                view{o.in[2].value}, at(o.out.value, nullptr), s.rows(), s.keep,
                                program_[o.in[1].value].size(), table_row(o.in[0], o.in[2]),
                                epilogues(o, nullptr)});
  }

  void emit_slice(const planner::operation& o, std::vector<step>& steps) {
    const planner::use& a = o.in[0];
    const char axis =
        planner::labels_where(a.labels, [&](char c) { return !has(o.out.labels, c); })[0];
    reduce_step s{text(o),
                  at(a.value, nullptr),
                  at(o.out.value, nullptr),
                  {},
                  {},
                  program_[o.out.value].size(),
                  {}};
    s.a.offset = o.index * program_.stride(a, axis);
    for (const char c : o.out.labels) s.out.push_back(nest(&a, nullptr, o.out, c));
    steps.push_back(std::move(s));
  }

  void emit_gate(const planner::operation& o, std::vector<step>& steps) {
    const planner::value& in = program_[o.in[0].value];
    gate_step s{text(o),
                o.fn,
                o.parameter,
                at(o.in[0].value, nullptr),
                at(o.out.value, nullptr),
                {},
                0,
                in.shape.back(),
                0};
    s.rows = in.rows();
    s.width = is_norm(o.fn) ? 1 : s.columns;
    if (o.in.size() > 1) {
      s.bound = at(o.in[1].value, nullptr);
      s.bounds = program_[o.in[1].value].size();
    }
    steps.push_back(std::move(s));
  }

  void emit_exclude(const planner::operation& o, std::vector<step>& steps) {
    exclude_step s;
    s.text = text(o);
    s.c = at(o.out.value, nullptr);
    const std::string own =
        planner::labels_where(o.out.labels, [&](char c) { return !has(o.masked, c); });
    const auto is_factor = [&](const planner::use& u) {
      return std::ranges::none_of(own, [&](char c) { return has(u.labels, c); });
    };
    std::vector<const planner::use*> in;
    for (const planner::use& u : o.in)
      if (is_factor(u)) in.push_back(&u);
    s.factors = in.size();
    for (const planner::use& u : o.in)
      if (!is_factor(u)) in.push_back(&u);
    for (const planner::use* u : in) s.operands.push_back(at(u->value, nullptr));
    const auto axis = [&](char c) {
      exclude_step::axis a{1, program_.stride(o.out, c), {}};
      for (const planner::use* u : in) {
        a.strides.push_back(program_.stride(*u, c));
        if (has(u->labels, c)) a.length = program_.extent_of(*u, c);
      }
      return a;
    };
    s.other = axis(o.masked[0]);
    s.group = axis(o.masked[1]);
    for (const char c : own) s.free.push_back(axis(c));
    std::string seen = o.masked;
    for (const planner::use* u : in)
      for (const char c : u->labels) {
        if (has(seen, c) || has(own, c)) continue;
        seen += c;
        const bool by_factors =
            std::none_of(in.begin() + static_cast<std::ptrdiff_t>(s.factors), in.end(),
                         [&](const planner::use* v) { return has(v->labels, c); });
        (by_factors ? s.inner : s.outer).push_back(axis(c));
      }
    std::vector<index_pair> pairs = *o.left_out;
    if (!o.swapped)
      for (auto& [i, j] : pairs) std::swap(i, j);
    std::ranges::sort(pairs);
    for (const auto& [group, other] : pairs) {
      if (s.groups.empty() || s.groups.back() != group)
        s.groups.push_back(group), s.ends.push_back(0);
      s.left_out.push_back(other);
      s.ends.back() = s.left_out.size();
    }
    s.is_row = s.free.size() == 1 && in.size() == s.factors + 1 && s.free[0].c == 1 &&
               s.free[0].strides.back() == 1;
    steps.push_back(std::move(s));
  }

  void emit_concat(const planner::operation& o, std::vector<step>& steps) {
    extent offset = 0;
    const char axis = o.out.labels[o.axis];
    for (const planner::use& a : o.in) {
      reduce_step s{text(o), at(a.value, nullptr), at(o.out.value, nullptr), {}, {}, 0, {}};
      s.c.offset = offset * program_.stride(o.out, axis);
      for (const char c : o.out.labels) {
        s.out.push_back(nest(&a, nullptr, o.out, c));
        s.out.back().length = program_.extent_of(a, c);
      }
      offset += program_.extent_of(a, axis);
      steps.push_back(std::move(s));
    }
  }

  // The token numbers that it sorts take one more element for each token.
  void emit_expert_choice(const planner::operation& o, std::vector<step>& steps) {
    steps.push_back(expert_choice_step{text(o), o.rule, at(o.in[0].value, nullptr),
                                       at(o.in[1].value, nullptr), at(o.out.value, nullptr),
                                       program_[o.out.value].keep, plan_.call});
    plan_.call += options_.on.cache_line / options_.element_bytes;
  }

  void emit_pick(const planner::operation& o, std::vector<step>& steps) {
    const planner::use& a = o.in[0];
    pick_step s{text(o), at(a.value, nullptr), at(o.out.value, nullptr), {}};
    if (o.expert != 0) s.a.expert = program_.stride(a, o.expert);
    const bool neighbours = o.expert == 0 || a.labels[0] == o.expert;
    if (neighbours) s.out = {{program_[o.out.value].size(), 1, 0, 1}};
    else
      for (const char c : o.out.labels) s.out.push_back(nest(&a, nullptr, o.out, c));
    steps.push_back(std::move(s));
  }

  // Emits all operations of a group; the last one adds the results.
  void emit_group(int id, std::vector<step>& steps) {
    const planner::expert_group& g = program_.groups[static_cast<extent>(id)];
    group_step s;
    s.experts = g.experts;
    s.keep = g.keep;
    s.rows = std::min(plan_.tile, options_.on.tile);
    s.scratch = tiling_.places.lists[static_cast<extent>(id)];
    for (const planner::operation& o : program_.operations) {
      if (o.group != id) continue;
      emit(o, nullptr, s.body);
      if (o.what != planner::operation::kind::put) continue;
      s.text = text(o);
      s.selection = at(g.selection, nullptr);
      s.c = at(o.out.value, nullptr);
      s.columns = program_[o.out.value].size();
      s.epilogues = epilogues(o, nullptr);
    }
    steps.push_back(std::move(s));
  }

  void emit(const planner::operation& o, const stream_loop* l, std::vector<step>& steps) {
    using enum planner::operation::kind;
    const planner::value& out = program_[o.out.value];
    const auto whole = [&](int v) { return at(v, nullptr); };
    switch (o.what) {
      case gemm: return emit_gemm(o, l, steps);
      case product:
      case batched: return emit_batched(o, l, steps);
      case reduce: return emit_reduce(o, steps);
      case token_sum: return emit_token_sum(o, steps);
      case concat: return emit_concat(o, steps);
      case gather: return emit_gather(o, steps);
      case rescale: return emit_rescale(o, steps);
      case sample: return emit_sample(o, steps);
      case pointwise:
        steps.push_back(pointwise_step{
            text(o), at(o.in[0].value, l), at(o.out.value, l), out.size(),
            l != nullptr ? out.size() / std::max<extent>(1, l->length) : 0, epilogues(o, l)});
        return;
      case gate: return emit_gate(o, steps);
      case append:
        steps.push_back(append_step{text(o), whole(o.in[0].value), whole(o.out.value), out.rows(),
                                    out.shape.back() - 1});
        return;
      case select:
        if (planner::is_barrier(o)) return emit_expert_choice(o, steps);
        steps.push_back(select_step{text(o), o.rule, at(o.in[0].value, l), whole(o.out.value),
                                    out.rows(), out.shape.back(), out.keep,
                                    out.each != 0 ? program_[o.in[0].value].shape.back() : 0});
        return;
      case screen: return emit_screen(o, steps);
      case pick: return emit_pick(o, steps);
      case put:
        steps.push_back(put_step{text(o), whole(o.in[0].value), whole(o.in[1].value),
                                 whole(o.out.value), out.size(), program_[o.in[1].value].keep});
        return;
      case slice: return emit_slice(o, steps);
      case exclude: return emit_exclude(o, steps);
      case expand:
        steps.push_back(expand_step{text(o), whole(o.in[0].value), whole(o.out.value), out.rows(),
                                    out.shape.back(), out.keep});
        return;
    }
  }

  const planner::program& program_;
  tiling tiling_;
  const planner::plan_options& options_;
  plan plan_;
  std::vector<int> made_in_stage_;  // by the operations of the last stage
};

}  // namespace fmoe::cpu
