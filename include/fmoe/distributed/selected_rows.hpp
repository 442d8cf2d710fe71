// SPDX-License-Identifier: MIT
// The rows of a selection on a rank, made of entries that came: of all columns of each part, or
// lists of their entries.
#pragma once

#include <algorithm>
#include <vector>

#include <fmoe/distributed/stage_plan.hpp>

namespace fmoe::detail {

// Which of this rank's parts has one of its columns, and where.
struct part_column {
  extent part, column;
};
inline part_column part_of(const axis_cut& cut, extent column) {
  const extent at = cut.begin_of(cut.rank) + column;
  extent i = 0;
  while (at >= cut.begin(cut.own(i) + 1)) ++i;
  return {i, at - cut.begin(cut.own(i))};
}

// The rows are empty at first.
template <class T>
class selected_rows {
 public:
  selected_rows(const axis_cut& cut, const stage_exchange& e,
                list_by<array_id, std::vector<T>>& arrays)
      : cut_(cut),
        e_(e),
        arrays_(arrays),
        ends_(e.lists.size()) {
    for (const array_id to : e.to) std::ranges::fill(arrays[to], T{0});
    for (const array_id to : e.lists) std::ranges::fill(arrays[to], T{-1});
  }

  // Adds an entry of a column of this rank, unless it is 0. Those of a row come by ascending
  // columns.
  void add(extent row, extent column, T value) {
    if (value == 0) return;
    const auto [part, place] = part_of(cut_, column);
    if (!e_.to.empty()) arrays_[e_.to[part]][row * cut_.count(cut_.own(part)) + place] = value;
    if (e_.lists.empty()) return;
    list_end& end = ends_[part];
    if (end.row != row) end = {row, 0};
    const extent keep = e_.rule.keep;
    T* const list = arrays_[e_.lists[part]].data() + 2 * row * keep + end.count++;
    list[0] = value;
    list[keep] = static_cast<T>(place);
  }

 private:
  struct list_end {
    extent row = all, count = 0;
  };

  const axis_cut& cut_;
  const stage_exchange& e_;
  list_by<array_id, std::vector<T>>& arrays_;
  std::vector<list_end> ends_;  // of the lists that are written, by part
};

}  // namespace fmoe::detail
