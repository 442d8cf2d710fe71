// SPDX-License-Identifier: MIT
// Tells whether the weights of a layer stay packed: fmoe's own code lends them to nobody.
#pragma once

#include <algorithm>

#include <fmoe/arrays/released.hpp>

namespace fmoe::test {

// True if nobody can write a weight without telling.
template <class Layer>
bool is_watched(const Layer& layer) {
  return std::ranges::none_of(detail::released_parameters(detail::only_listed(layer)),
                              [](const detail::released_parameter& p) {
                                const detail::any_tensor value = p.parameter.value();
                                return !value.empty() && value.elements->is_unwatched();
                              });
}

}  // namespace fmoe::test
