// SPDX-License-Identifier: MIT
// The kernels of the instruction set that this translation unit is compiled for.
#pragma once

#include <fmoe/backend/cpu/host_executable.hpp>
#include <fmoe/backend/cpu/level_kernels.hpp>
#include <fmoe/backend/cpu/machine.hpp>

namespace fmoe::cpu {

template <class T, class Level>
const level_kernels& level_kernels_of() {
  static constexpr level_kernels functions{
      .machine = machine_of<T, native_arch>,
      .facts = kernel_facts_of<T, native_arch>,
      .executable_of = [](step_plan p, std::span<const ir::leaf_node> leaves, extent callers,
                          extent threads) -> std::unique_ptr<executable> {
        return std::make_unique<host_executable<T, Level>>(std::move(p), leaves, callers, threads);
      },
      .packed_bytes = constants<T, native_arch>::bytes,
      .call_bytes = [](const step_plan& p,
                       extent threads) { return call_memory<T>(p).bytes(tasks_of(threads)); }};
  return functions;
}

}  // namespace fmoe::cpu
