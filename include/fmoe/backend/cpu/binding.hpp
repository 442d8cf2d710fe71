// SPDX-License-Identifier: MIT
// What a task of a call knows while it runs: the memory that it reads and writes, and its place.
#pragma once

#include <span>

#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/crew.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/plan/plan.hpp>

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
  extent keep = all;                      // entries that a top-k keeps at most
  std::span<const bool> adds{};           // to these results
  std::span<table_rows* const> tables{};  // by result, if it is sparse
  score_bounds* bounds = nullptr;         // of all rows of the call, which are the tile's
};

// The state of a task: its rows, and its position in the enclosing loop or group.
template <class T>
struct frame {
  extent first, count;
  const binding<T>* bound;
  T* arena;
  extent row = 0;  // the first of the rows that this task has of the tile
  crew* threads = &crew::alone();
  extent tokens = 0, part = 0, parts = 1;  // in a step of a whole call
  const std::byte* next = nullptr;         // the weights that the step after this one reads first
  extent at = 0, length = 0;
  bool in_loop = false, is_first = true, is_last = true;
  const group_row* group = nullptr;  // the tokens of the rows, in a group
  extent expert = 0;
  extent listed = 0;  // the place of the first row in the group's list
  extent own = 0;     // elements from the arena to the memory of the rows of a chunk
  // Elements from the arena to those of the other threads that share it, which are so far apart.
  extent others = 0, apart = 0;
};

}  // namespace fmoe::cpu
