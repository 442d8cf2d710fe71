// SPDX-License-Identifier: MIT
// The memory that steps use between their own launches: for sums of blocks, and for candidates of
// long rows.
#pragma once

#include <fmoe/backend/cuda/policy.hpp>
#include <fmoe/backend/cuda/select_steps.hpp>
#include <fmoe/backend/cuda/token_sum_steps.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cuda {

// Returns the elements that each caller of a plan needs.
template <class T>
class sums_room {
 public:
  sums_room(const step_plan& p, math policy) : plan_(p), policy_(policy) {
    for (const step& s : p.steps) visit([&](const auto& kind) { add(kind); }, s);
  }

  extent elements() const { return elements_; }

 private:
  void need(extent n) { elements_ = std::max(elements_, n); }
  void need(const gemm_step& s, extent rows, extent tile_rows) {
    product_shape shape{rows, s.K, s.N, s.rows.size(), plan_.sum_block, tile_rows, false};
    const math how = std::is_same_v<T, float> ? math_of(s, policy_) : math::exact;
    if (how == math::exact || how == math::fp32) return need(room_for_sums(shape));
    shape.sum_block = tensor_sum_block(how, shape.sum_block);
    need(room_for_tensor_sums(shape));
  }

  void add(const gemm_step& s) { need(s, plan_.tile, 0); }
  void add(const group_step& s) {
    for (const step& inner : s.body)
      if (const auto* product = get_if<gemm_step>(&inner))
        need(*product, plan_.tile * s.keep, small_tile);
  }
  void add(const select_step& s) {
    if (s.rule.what == selection_rule::kind::top_k)
      need(room_for_candidates<T>(plan_.tile * s.rows, s.columns, s.keep));
  }
  void add(const token_sum_step& s) {
    extent places = 1;
    for (const nest_axis& a : s.out) places *= a.length;
    need(room_for_parts(places, plan_.token_count, s.block));
  }
  void add(const selection_sum_step& s) {
    const extent parts = room_for_parts(s.experts * s.N, plan_.token_count, s.block);
    const extent entries = round_up(plan_.token_count * s.keep, extent{numbers_each<T>});
    if (parts != 0) need(parts + entries);
  }
  void add(const screen_step& s) {
    need(room_for_tensor_sums({plan_.tile, s.K, s.N, 1, plan_.sum_block, 0, false}));
  }
  void add(const auto&) {}

  const step_plan& plan_;
  math policy_;
  extent elements_ = 0;
};

}  // namespace fmoe::cuda
