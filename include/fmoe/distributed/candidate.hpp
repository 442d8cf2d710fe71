// SPDX-License-Identifier: MIT
// An entry of a selection on its way between ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace fmoe::detail {

// A score and its place; what is 0 has none. The index has the width of the score, so that no byte
// between them is sent.
template <class T>
struct candidate {
  using index_type = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static constexpr index_type nowhere = ~index_type{0};

  T value = 0;
  index_type index = nowhere;

  // A mark on an entry, beside its place, which is below `most`, or nowhere.
  static constexpr index_type most = index_type{1} << (8 * sizeof(index_type) - 2);
  candidate marked() const { return {value, index ^ most}; }
  bool has_mark() const { return (index & most) != 0 ? index < 2 * most : index >= 2 * most; }

  // The order of top_k: NaN is the greatest, and of equal scores the lower index comes first.
  bool is_before(const candidate& o) const {
    if (value > o.value || value < o.value) return value > o.value;
    const bool mine = std::isnan(value), theirs = std::isnan(o.value);
    return mine != theirs ? mine : index < o.index;
  }
};

}  // namespace fmoe::detail
