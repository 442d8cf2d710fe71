// SPDX-License-Identifier: MIT
// The wall between planner and kernels: all that the CPU's backend asks of the kernels of one
// instruction set. What lies behind it, level_kernels-inl.hpp, is compiled for each level, and
// knows no pass of the planner; what lies before it is compiled once.
#pragma once

#include <memory>
#include <span>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cpu {

// The functions of a level, in the arithmetic of one type.
struct level_kernels {
  fmoe::machine (*machine)();
  planner::kernel_facts (*facts)();
  // The executable of a plan, with the memory of `callers` calls on `threads` threads.
  std::unique_ptr<executable> (*executable_of)(step_plan, std::span<const ir::leaf_node> leaves,
                                               extent callers, extent threads);
  // The bytes of the weights as the steps read them, and of a call's memory.
  extent (*packed_bytes)(const step_plan&, std::span<const ir::leaf_node> leaves);
  extent (*call_bytes)(const step_plan&, extent threads);
};

template <class T, class Level>
const level_kernels& level_kernels_of();

}  // namespace fmoe::cpu

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/cpu/level_kernels-inl.hpp>
#endif
