// SPDX-License-Identifier: MIT
// The CPU that runs the program, as the planner sees it.
#pragma once

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/backend/cpu/measure.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/planner/kernel_facts.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// For arithmetic of T with the kernels of Arch.
template <class T, class Arch>
machine machine_of() {
  machine m = this_machine<Arch>();
  m.name = native::name;
  if (std::is_same_v<T, double>)
    for (machine_rates* r : {&m.one, &m.every}) r->flops /= 2;
  return m;
}

// What the kernels of Arch can do in arithmetic of T.
template <class T, class Arch>
planner::kernel_facts kernel_facts_of() {
  planner::kernel_facts f{.panel = panel_width<T, Arch>,
                          .samples_kept = true,
                          .compacts = true,
                          .screens_nonzeros = true,
                          .selection_size = &top_k_state_size<T, Arch>};
  if (std::is_same_v<T, float>)
    f.screen_size = [](extent depth, extent, extent keep, extent tokens) {
      return screen_row::size(depth, keep, tokens);
    };
  return f;
}

}  // namespace fmoe::cpu
