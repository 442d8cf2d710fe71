// SPDX-License-Identifier: MIT
// Share: with fewer tiles than threads, several threads share the rows of steps that are no
// products, where that is predicted to be quicker. Threads share the columns of products in any
// case.
#pragma once

#include <fmoe/backend/cpu/schedule/predict.hpp>
#include <fmoe/planner/options.hpp>

namespace fmoe::cpu {

inline bool makes_rows_alone(const step& s);

// Does the step make each row from the same row of what it reads? Products have a way of their own;
// a group and its steps sort the rows by expert.
template <class Step>
bool is_by_row(const Step&) {
  const auto is_none_of = []<class... Other>() { return !(std::is_same_v<Step, Other> || ...); };
  return is_none_of.template
  operator()<gemm_step, screen_step, token_sum_step, selection_sum_step, expert_choice_step,
             expert_sum_step, pick_step, put_step, keep_step, group_step>();
}
inline bool is_by_row(const loop_step& s) { return std::ranges::all_of(s.body, makes_rows_alone); }

inline bool makes_rows_alone(const step& s) {
  return visit([](const auto& kind) { return is_by_row(kind); }, s);
}

// Finds the rows to share in the steps of a plan, from the times that the plan takes on one thread
// by itself and beside others.
class row_sharing {
 public:
  row_sharing(step_plan& p, std::span<const double> alone, std::span<const double> beside,
              extent threads)
      : plan_(p),
        alone_(alone),
        beside_(beside),
        threads_(threads) {
    for (const stage& of : p.stages) {
      if (of.per_call) skip(p.steps, of);
      else find(p.steps, of, 1, p.shared);
    }
  }

 private:
  struct times {
    double alone = 0, beside = 0;  // of a call
  };

  // The times of a step, after which those of the next one follow.
  times next(const step& s) {
    const times t{alone_[at_], beside_[at_]};
    ++at_;
    skip_body(s);
    return t;
  }
  void skip(const vector<step>& steps, const stage& of) {
    for (extent i = of.first; i < of.end; ++i) next(steps[i]);
  }
  void skip_body(const step& s) {
    const auto skip_all = [&](const vector<step>& body) { skip(body, {false, 0, body.size()}); };
    if (const auto* l = get_if<loop_step>(&s)) skip_all(l->body);
    if (const auto* g = get_if<group_step>(&s)) skip_all(g->body);
  }

  // A list of steps that a tile runs so many times.
  void find(vector<step>& steps, const stage& of, extent times_a_tile, vector<row_range>& found) {
    for (extent i = of.first; i < of.end;) {
      row_range r{i, i, 1};
      times all;
      vector<extent> used;
      for (; r.end < of.end && makes_rows_alone(steps[r.end]); ++r.end) {
        if (!lie_apart(used, steps[r.end])) break;
        const times t = next(steps[r.end]);
        all.alone += t.alone;
        all.beside += t.beside;
      }
      if (r.end > i) {
        r.least = rows_worth_sharing(all, times_a_tile);
        if (r.least != 0) found.push_back(r);
        i = r.end;
        continue;
      }
      if (auto* l = get_if<loop_step>(&steps[i])) {
        ++at_;
        const extent chunks = divide_up(l->length, std::max<extent>(1, l->chunk));
        find(l->body, {false, 0, l->body.size()}, times_a_tile * chunks, l->shared);
      } else {
        next(steps[i]);
      }
      ++i;
    }
  }

  // Adds the storages of a step to those of the steps before it, unless one of its rows shares
  // memory with another row of theirs: a thread may be some steps ahead of another one.
  bool lie_apart(vector<extent>& used, const step& s) const {
    const extent known = used.size();
    for (const access& a : accesses(plan_, s)) {
      const storage_row& x = plan_.storages[a.where.storage];
      if (x.where != storage_row::kind::arena) continue;
      for (extent i = 0; i < known; ++i) {
        const storage_row& y = plan_.storages[used[i]];
        const bool are_same = x.offset == y.offset && x.stride == y.stride;
        if (!are_same && x.offset < y.offset + y.stride * plan_.tile &&
            y.offset < x.offset + x.stride * plan_.tile) {
          used.resize(known);
          return false;
        }
      }
      used.push_back(a.where.storage);
    }
    return true;
  }

  // Returns the rows that take several times as long as handing them over. It is 0 if a tile has
  // not twice as many, or threads together are hardly quicker than one.
  extent rows_worth_sharing(const times& t, extent times_a_tile) const {
    constexpr double worthwhile = 5 * prediction::hand_over, gain = 0.9;
    const double a_row = t.alone / static_cast<double>(plan_.token_count * times_a_tile);
    const bool is_quicker = t.beside < gain * t.alone * static_cast<double>(threads_);
    if (!is_quicker || a_row * static_cast<double>(plan_.tile) < 2 * worthwhile) return 0;
    const auto least = static_cast<extent>(std::ceil(worthwhile / a_row));
    return 2 * least <= plan_.tile ? least : 0;
  }

  step_plan& plan_;
  std::span<const double> alone_, beside_;
  extent threads_, at_ = 0;
};

// Notes in the plan which rows several threads share, and what a weight takes beside others.
inline void share_rows(step_plan& p, std::span<const ir::leaf_node> leaves,
                       const planner::plan_options& how) {
  if (how.threads == 1) return;
  machine busy = how.on;
  busy.one = shared_rates(how.on, how.threads);
  const prediction alone(p, leaves, how.on, how.element_bytes, 1),
      beside(p, leaves, busy, how.element_bytes, 1);
  p.read_seconds = beside.read_seconds();
  p.multiply_add_seconds = beside.multiply_add_seconds();
  if (!p.tokens || p.token_count == 0) return;
  row_sharing(p, alone.of_steps(), beside.of_steps(), how.threads);
}

}  // namespace fmoe::cpu
