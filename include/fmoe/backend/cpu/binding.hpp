// SPDX-License-Identifier: MIT
// What one tile of a call reads and writes outside its arena.
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
struct binding {  // of one tile: where its first row is; of a result without tokens, all of it
  std::span<const rows_of<const T>> arguments{};
  std::span<const rows_of<T>> results{};
  T* call = nullptr;  // what the call keeps between stages, of `call_rows` tokens
  extent call_rows = 0;
};

}  // namespace fmoe::cpu
