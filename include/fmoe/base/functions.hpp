// SPDX-License-Identifier: MIT
// The functions that expressions apply to one number at a time.
#pragma once

#include <cstdint>

namespace fmoe {

enum class pointwise : std::uint8_t {
  relu,          // max(x, 0)
  gelu,          // x Phi(x), exact (erf) form
  gelu_tanh,     // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  silu,          // x sigmoid(x)
  sigmoid,       // 1 / (1 + exp(-x))
  squared_relu,  // max(x, 0)^2
  exp,
  sqrt,
  negate,     // -x
  scale,      // x times the parameter
  threshold,  // x where x >= the parameter, else 0; NaN stays
};

constexpr const char* name_of(pointwise f) {
  constexpr const char* names[] = {"relu", "gelu", "gelu_tanh", "silu",  "sigmoid",  "squared_relu",
                                   "exp",  "sqrt", "negate",    "scale", "threshold"};
  return names[static_cast<int>(f)];
}

}  // namespace fmoe
