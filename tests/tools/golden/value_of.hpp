// SPDX-License-Identifier: MIT
// The backend that is judged computes every value that a case compares.
#pragma once

#include <fmoe/evaluate.hpp>

namespace fmoe::golden {

// The CPU unless the command line names another backend.
inline compile_options judged;

template <operand E>
auto value_of(const E& e) {
  return evaluate(e, judged);
}

}  // namespace fmoe::golden
