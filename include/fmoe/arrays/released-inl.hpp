// SPDX-License-Identifier: MIT
// The list of a layer's parameters.
#pragma once

#include <fmoe/arrays/released.hpp>

namespace fmoe::detail {

FMOE_INLINE void parameter_list::operator()(released_name name, parameter_reference parameter) {
  parameters_.push_back({std::move(name), parameter});
}

}  // namespace fmoe::detail
