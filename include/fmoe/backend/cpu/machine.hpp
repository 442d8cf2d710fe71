// SPDX-License-Identifier: MIT
// The properties of this backend that the planner must know.
#pragma once

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/planner/options.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
planner::plan_options machine(planner::plan_options o) {
  o.element_bytes = sizeof(T);
  o.panel = panel_width<T, Arch>;
  o.selection_size = &top_k_state_size<T, Arch>;
  if (std::is_same_v<T, float>) {
    constexpr extent few = 6;  // without bf16 dot products screening saves only the time of memory
    o.screen_size = &screen_row::size;
    o.screened_tokens = is_avx512<Arch> && has_bf16_dots() ? ~extent{0} : few;
  }
  return o;
}

}  // namespace fmoe::cpu
