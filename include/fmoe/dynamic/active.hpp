// SPDX-License-Identifier: MIT
// K of a layer of any kind.
#pragma once

#include <fmoe/base/error.hpp>

namespace fmoe::detail {

// Lets the selection of a layer keep k entries, or with `all` every one. Throws value_error for 0,
// and for a layer that selects nothing, as a muMoE, or that is an edit.
template <class Layer>
void set_active(Layer& layer, extent k) {
  expects<value_error>(k > 0, "[with_active] K is 0 and must be at least 1");
  if constexpr (requires { layer.active; }) layer.active = k;
  else if constexpr (requires { layer.route.active; }) layer.route.active = k;
  else if constexpr (requires { layer.router.active; }) layer.router.active = k;
  else fail<value_error>("[with_active] this kind of layer has none");
}

}  // namespace fmoe::detail
