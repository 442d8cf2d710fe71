// SPDX-License-Identifier: MIT
// Limits that make plans of small expressions as rich as those of large ones, on this CPU.
#pragma once

#include <fmoe/backend/cpu/level_kernels.hpp>

#include "names.hpp"

namespace fmoe::test {

// The same options for this CPU and arithmetic of T: its panels and selections, with the limits of
// `how`.
template <class T>
planner::plan_options on_this_cpu(planner::plan_options how) {
  how.on = cpu::level_kernels_of<T, cpu::native>().machine();
  how.kernels = cpu::level_kernels_of<T, cpu::native>().facts();
  how.element_bytes = sizeof(T);
  return how;
}

// The same for compile, evaluate and explain.
template <class T>
compile_options limited(const planner::plan_options& how) {
  compile_options options;
  options.naive = how.naive;
  options.shape = how.shape;
  options.sum_block = how.sum_block;
  return options;
}

}  // namespace fmoe::test
