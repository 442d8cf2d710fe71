// SPDX-License-Identifier: MIT
// The types of layers that files hold, for fuzzers.
#pragma once

#include <fmoe/fmoe.hpp>

namespace fmoe::fuzz {

// Calls f with a null pointer of each type.
template <class F>
void for_each_layer_type(F f) {
  const auto each = [&]<class... Layers>(std::tuple<Layers*...>) {
    (f(static_cast<Layers*>(nullptr)), ...);
  };
  each(std::tuple<mxd<>*, sparse_mlp<>*, cp_mumoe<1>*, cp_mumoe<2>*, tr_mumoe<1>*, tr_mumoe<2>*,
                  tucker_mumoe<1>*, dense_mumoe<2>*, cp_mumoe_block<1>*, monet_hd<>*, monet_vd<>*,
                  monet_router<>*, aoe<>*, moe<>*, soft_moe<>*, peer<>*>());
}

}  // namespace fmoe::fuzz
