// SPDX-License-Identifier: MIT
// The rows of a group: the selected entries of all tokens, sorted by expert.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fmoe/base/checked.hpp>

namespace fmoe::cpu {

struct group_row {  // the token of the row, and the position of its weight in the token's selection
  std::uint32_t token, place;
};

// A stable counting sort of the entries that `kept` returns for each token. starts[e], of experts +
// 1 numbers, becomes the end of the rows of expert e.
void sort_by_expert(extent experts, extent tokens, std::uint32_t* starts, group_row* lists,
                    const auto& kept) noexcept {
  std::fill_n(starts, experts + 1, 0u);
  for (extent t = 0; t < tokens; ++t) {
    const auto k = kept(t);
    for (extent i = 0; i < k.count; ++i) ++starts[k.indices[i] + 1];
  }
  for (extent e = 0; e < experts; ++e) starts[e + 1] += starts[e];
  for (extent t = 0; t < tokens; ++t) {
    const auto k = kept(t);
    for (extent i = 0; i < k.count; ++i)
      lists[starts[k.indices[i]]++] = {static_cast<std::uint32_t>(t),
                                       static_cast<std::uint32_t>(i)};
  }
}

}  // namespace fmoe::cpu
