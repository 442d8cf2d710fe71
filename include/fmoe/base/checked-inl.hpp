// SPDX-License-Identifier: MIT
// The error of a size that does not fit.
#pragma once

#include <string>

#include <fmoe/base/checked.hpp>

namespace fmoe::detail {

FMOE_INLINE void refuse_shape(std::span<const extent> shape) {
  std::string text;
  for (const extent n : shape) text.append(text.empty() ? "[" : ", ").append(std::to_string(n));
  fail<shape_error>("[tensor] the bytes of the shape ", text,
                    "] do not fit 64 bits: a negative number is no extent");
}

}  // namespace fmoe::detail
