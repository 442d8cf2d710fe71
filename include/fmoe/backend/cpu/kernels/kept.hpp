// SPDX-License-Identifier: MIT
// The kept entries of a selection as rows of K numbers: their values or their indices. After the
// last entry come values of 0 and indices of -1.
#pragma once

#include <fmoe/backend/cpu/kernels/gather.hpp>

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

}  // namespace fmoe::cpu
