// SPDX-License-Identifier: MIT
// The CPU that runs the program, as the planner sees it.
#pragma once

#include <fmoe/backend/cpu/kernels/screen.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// For arithmetic of T with the kernels of Arch.
template <class T, class Arch>
machine machine_of() {
  const bool dots = is_avx512<Arch> && has_bf16_dots();
  machine m;
  m.name = std::string(native::name) + (dots ? " with bf16 dot products" : "");
  m.panel = panel_width<T, Arch>;
  m.selection_size = &top_k_state_size<T, Arch>;
  if (std::is_same_v<T, float>) {
    constexpr extent few = 6;  // without bf16 dot products, screening only saves memory's time
    m.screen_size = &screen_row::size;
    m.screened_tokens = dots ? all : few;
  }
  return m;
}

}  // namespace fmoe::cpu
