// SPDX-License-Identifier: MIT
// The kept entries of a selection as rows of K numbers: their values or their indices. After the
// last entry come values of 0 and indices of -1. And the other way: a selection of such rows.
#pragma once

#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

template <class T>
void kept_values(selected<T> s, T* row, extent keep) noexcept {
  std::fill(std::copy_n(s.values, s.count, row), row + keep, T(0));
}

template <class T>
void kept_indices(selected<T> s, T* row, extent keep) noexcept {
  const auto number = [](std::uint32_t index) { return static_cast<T>(index); };
  std::fill(std::transform(s.indices, s.indices + s.count, row, number), row + keep, T(-1));
}

template <class T, class Arch>
void keep_entries(const top_k_state<T, Arch>& s, const T* values, const T* indices,
                  extent keep) noexcept {
  s.count = 0;
  for (extent k = 0; k < keep; ++k) {
    if (indices[k] < 0) continue;
    s.values[s.count] = values[k];
    s.indices[s.count++] = static_cast<std::uint32_t>(indices[k]);
  }
}

}  // namespace fmoe::cpu
