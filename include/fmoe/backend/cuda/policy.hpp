// SPDX-License-Identifier: MIT
// The arithmetic of each product of a plan. What ranks experts is found in the plan: a product
// ranks if a selection reads what follows from it, or a softmax or entmax, which makes the
// coefficients of all experts and leaves out some.
#pragma once

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/plan/accesses.hpp>

namespace fmoe::cuda {

// What ranks experts is never rounded to tf32 or bf16, so that it selects those that it would
// select in float, unless two scores are as near as roundings of float.
constexpr math ranking_math(math how) {
  return how == math::tf32 || how == math::bf16 ? math::tf32x3
         : how == math::fp32                    ? math::exact
                                                : how;
}

// The products of a plan that rank experts.
class ranking {
 public:
  explicit ranking(const step_plan& p) : plan_(p), ranks_(p.storages.size()) {
    for (extent before = ~extent{0}; before != count_;) {  // bodies of groups read later ones
      before = count_;
      for (extent i = p.steps.size(); i-- > 0;) add(p.steps[i]);
    }
  }

  bool has(const gemm_step& s) const { return ranks(s.c); }

 private:
  // Results may have several storages.
  bool ranks(const view& v) const {
    const storage_row& row = plan_.storages[v.storage];
    if (row.where != storage_row::kind::output) return ranks_[v.storage];
    for (extent s = 0; s < ranks_.size(); ++s) {
      const storage_row& other = plan_.storages[s];
      if (ranks_[s] && other.where == row.where && other.source == row.source) return true;
    }
    return false;
  }
  void mark(const view& v) {
    if (!v.exists() || ranks_[v.storage]) return;
    ranks_[v.storage] = true;
    ++count_;
  }

  void add(const step& s) {
    visit([&](const auto& kind) { add(kind); }, s);
  }
  void add(const select_step& s) {
    mark(s.a);
    mark(s.ranked);
  }
  void add(const screen_step& s) {
    mark(s.a);
    for (const epilogue& e : s.epilogues) mark(e.other);
  }
  void add(const expert_choice_step& s) {
    mark(s.scores);
    mark(s.ranked);
  }
  void add(const row_function_step& s) {
    const bool is_gate = s.fn == row_function::softmax || s.fn == row_function::bounded_softmax ||
                         s.fn == row_function::entmax || s.fn == row_function::best_groups ||
                         s.fn == row_function::group_max || s.fn == row_function::sparse_mixer;
    if (is_gate || ranks(s.c)) mark(s.a);
    if (ranks(s.c)) mark(s.bound);
  }
  void add(const group_step& s) {
    for (const epilogue& e : s.epilogues)
      if (ranks(s.c)) mark(e.other);
    for (extent i = s.body.size(); i-- > 0;) add(s.body[i]);
  }
  // Any other step ranks if what it writes does.
  template <class Step>
  void add(const Step& s) {
    const access_list all = accesses(plan_, s);
    for (const access& a : all)
      if (a.mode != access_mode::read && ranks(a.where)) {
        for (const access& read : all) mark(read.where);
        return;
      }
  }

  const step_plan& plan_;
  vector<bool> ranks_;  // by storage: does what follows from it rank experts?
  extent count_ = 0;
};

// The arithmetic of a product of one call, or of constants, which are exact.
inline math math_of(const gemm_step& s, math policy) {
  return s.ranks ? ranking_math(policy) : policy;
}

// Calls f with each step of a list, those of bodies after their group.
template <class Steps, class F>
void each_step(Steps& steps, const F& f) {
  for (auto& s : steps) {
    f(s);
    if (auto* const group = get_if<group_step>(&s)) each_step(group->body, f);
    if (auto* const loop = get_if<loop_step>(&s)) each_step(loop->body, f);
  }
}

// Sets `ranks` of each product.
inline void mark_ranking(step_plan& p) {
  const ranking r(p);
  each_step(p.steps, [&](step& s) {
    if (auto* const product = get_if<gemm_step>(&s)) product->ranks = r.has(*product);
  });
}

}  // namespace fmoe::cuda
