// SPDX-License-Identifier: MIT
// The kernels of optimizers are those of the level which at_level chooses. Other translation units
// hold them.
#pragma once

#include <fmoe/backend/cpu/dispatch.hpp>
#include <fmoe/optimizers/update.hpp>

namespace fmoe::detail {

template <>
FMOE_INLINE void update_weights<cpu::dispatched>(const cpu::sgd_numbers& rule,
                                                 const weight_update& to) {
  cpu::at_level([&]<class Level>() { update_weights<Level>(rule, to); });
}
template <>
FMOE_INLINE void update_weights<cpu::dispatched>(const cpu::adam_numbers& rule,
                                                 const weight_update& to) {
  cpu::at_level([&]<class Level>() { update_weights<Level>(rule, to); });
}
template <>
FMOE_INLINE double squares_of<cpu::dispatched>(const number_array& x) {
  return cpu::at_level([&]<class Level>() { return squares_of<Level>(x); });
}
template <>
FMOE_INLINE void scale_array<cpu::dispatched>(const number_array& x, double factor) {
  cpu::at_level([&]<class Level>() { scale_array<Level>(x, factor); });
}

}  // namespace fmoe::detail
