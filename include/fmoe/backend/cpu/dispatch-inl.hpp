// SPDX-License-Identifier: MIT
// The kernels of the CPU's backend are those of the level which at_level chooses. Other translation
// units hold them.
#pragma once

#include <fmoe/backend/cpu/dispatch.hpp>
#include <fmoe/backend/cpu/level_kernels.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::cpu {

template <>
FMOE_INLINE const level_kernels& level_kernels_of<float, dispatched>() {
  return at_level(
      []<class Level>() -> const level_kernels& { return level_kernels_of<float, Level>(); });
}
template <>
FMOE_INLINE const level_kernels& level_kernels_of<double, dispatched>() {
  return at_level(
      []<class Level>() -> const level_kernels& { return level_kernels_of<double, Level>(); });
}

}  // namespace fmoe::cpu
