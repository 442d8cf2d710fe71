// SPDX-License-Identifier: MIT
// The parts into which the tasks of a call share a step that runs once for the whole call.
#pragma once

#include <fmoe/backend/cpu/kernels/expert_sum.hpp>
#include <fmoe/backend/cpu/kernels/selection_sum.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>

namespace fmoe::cpu {

// Returns how many parts of the step this number of threads can use. Only sums over tokens are cut.
inline extent parts_of(const step& s, extent tokens, extent threads) noexcept {
  if (const auto* sum = get_if<token_sum_step>(&s)) return token_sum_parts(*sum, tokens, threads);
  if (const auto* sum = get_if<selection_sum_step>(&s))
    return selection_sum_parts(*sum, tokens, threads);
  if (const auto* sum = get_if<expert_sum_step>(&s)) return expert_sum_parts(*sum, tokens, threads);
  return 1;
}

}  // namespace fmoe::cpu
