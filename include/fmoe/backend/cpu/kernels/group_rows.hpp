// SPDX-License-Identifier: MIT
// The rows of a group: the selected entries of all tokens, sorted by expert.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/compiler.hpp>

namespace fmoe::cpu {

struct group_row {  // the token of the row, and the position of its weight in the token's selection
  std::uint32_t token, place;
};

struct group_list {
  std::uint32_t* ends;  // of the rows of each expert
  group_row* rows;
  std::span<std::uint32_t> busy;  // the experts with rows

  extent first(extent expert) const { return expert == 0 ? 0 : ends[expert - 1]; }
  extent count(extent expert) const { return ends[expert] - first(expert); }
};

// A stable counting sort of the entries that `kept` returns for each token, in memory for two
// numbers of each expert, one more, and two of each entry. Busy experts are in order.
group_list sort_by_expert(extent experts, extent tokens, std::uint32_t* memory,
                          const auto& kept) noexcept {
  std::uint32_t *const starts = memory, *const busy = starts + experts + 1;
  auto* const rows = reinterpret_cast<group_row*>(busy + experts);
  std::fill_n(starts, experts + 1, 0u);
  for (extent t = 0; t < tokens; ++t) {
    const auto k = kept(t);
    for (extent i = 0; i < k.count; ++i) ++starts[k.indices[i] + 1];
  }
  extent n = 0;
  for (extent e = 0; e < experts; ++e) {
    if (starts[e + 1] != 0) busy[n++] = static_cast<std::uint32_t>(e);
    starts[e + 1] += starts[e];
  }
  for (extent t = 0; t < tokens; ++t) {
    const auto k = kept(t);
    for (extent i = 0; i < k.count; ++i)
      rows[starts[k.indices[i]]++] = {static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(i)};
  }
  return {starts, rows, {busy, n}};  // each start became an end
}

// Fetches a row while the one before it is copied: the rows of an expert lie anywhere, and each by
// itself would wait for memory.
template <class T>
void fetch_row(const T* row, extent size) noexcept {
  for (extent i = 0; i < size; i += 64 / sizeof(T)) FMOE_PREFETCH(row + i);
}

}  // namespace fmoe::cpu
