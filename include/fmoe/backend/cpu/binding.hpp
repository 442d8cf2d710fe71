// SPDX-License-Identifier: MIT
// The memory outside its arena that a tile of a call reads and writes.
#pragma once

#include <span>

#include <fmoe/backend/cpu/plan/plan.hpp>

namespace fmoe::cpu {

template <class T>
struct rows_of {  // rows of T that a call binds, one stride apart
  T* data = nullptr;
  extent stride = 0;
};

template <class T>
struct binding {  // for one tile: the addresses of its first row; of a sum over tokens, of all
  std::span<const rows_of<const T>> arguments{};
  std::span<const rows_of<T>> results{};
  T* call = nullptr;  // memory that the call keeps between stages, of `call_rows` tokens
  extent call_rows = 0;
};

}  // namespace fmoe::cpu
