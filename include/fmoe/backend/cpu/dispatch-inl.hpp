// SPDX-License-Identifier: MIT
// The CPU's backend is that of the level which at_level chooses. Other translation units hold it.
#pragma once

#include <memory>

#include <fmoe/backend/cpu/dispatch.hpp>
#include <fmoe/backend/cpu/host.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::cpu {

template <>
FMOE_INLINE std::shared_ptr<const backend> host<float, dispatched>() {
  return at_level([]<class Level>() { return host<float, Level>(); });
}
template <>
FMOE_INLINE std::shared_ptr<const backend> host<double, dispatched>() {
  return at_level([]<class Level>() { return host<double, Level>(); });
}

}  // namespace fmoe::cpu
