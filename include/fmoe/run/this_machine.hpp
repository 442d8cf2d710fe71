// SPDX-License-Identifier: MIT
// The machine that runs the program.
#pragma once

#include <fmoe/backend/cpu/host.hpp>
#include <fmoe/run/compile_graph.hpp>

namespace fmoe {

// Returns what the planner knows of the CPU that runs the program, in the arithmetic of T, which is
// float or double. The first call, or the first plan of the process, measures it in about 10 ms.
template <class T = float, class Level = cpu::native>
machine this_machine() {
  return cpu::host<T, Level>()->machine(detail::dtype_of<T>);
}

}  // namespace fmoe
