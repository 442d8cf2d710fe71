// SPDX-License-Identifier: MIT
// The rows that kernels read and write: of tokens, or of the pairs of a token and an expert that a
// group works on.
#pragma once

#include <fmoe/backend/cuda/kernels/number.hpp>

namespace fmoe::cuda {

// Rows of elements that are `stride` apart.
template <class T>
struct rows_at {
  T* data = nullptr;
  extent stride = 0;
  extent expert = 0;  // elements from one expert's to the next, in a group

  FMOE_DEVICE T* row(extent r, extent of_expert = 0) const {
    return data + r * stride + of_expert * expert;
  }
};

// The rows of a group, sorted by expert and then by token. A group's rows are counted on the
// device, so a launch has threads for as many as there may be.
struct group_rows {
  const index* count = nullptr;    // null outside of groups
  const index* tokens = nullptr;   // of each row
  const index* experts = nullptr;  // of each row

  FMOE_DEVICE bool has(extent row) const { return count == nullptr || row < *count; }
  FMOE_DEVICE extent token_of(extent row) const { return count == nullptr ? row : tokens[row]; }
  FMOE_DEVICE extent expert_of(extent row) const { return count == nullptr ? 0 : experts[row]; }
};

}  // namespace fmoe::cuda
