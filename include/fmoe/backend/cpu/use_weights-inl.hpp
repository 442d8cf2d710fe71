// SPDX-License-Identifier: MIT
// The kernels of narrow weights become a part of a header-only program.
#pragma once

#include <fmoe/backend/cpu/stored_weights.hpp>
#include <fmoe/backend/cpu/use_weights.hpp>

#if !defined(FMOE_SEPARATE_COMPILATION)  // otherwise use_weights.hpp has one that does nothing
namespace fmoe::cpu {

template <class T, class Level, type_set Types>
void use_weights() {
  if constexpr (std::is_same_v<T, float>)
    for_narrow_types<native_arch>([]<class S>(S*) {
      if constexpr ((Types & type_bit<S>) != 0)
        narrow_weights_in_program<native_arch>[static_cast<extent>(dtype_of<S>)] =
            &stored_weights_of<float, S, native_arch>();
    });
}

}  // namespace fmoe::cpu
#endif
