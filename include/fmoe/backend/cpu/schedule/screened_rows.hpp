// SPDX-License-Identifier: MIT
// Screened rows: a screen keeps the columns of its parameter as rows of float. Where a plan makes
// the same rows for gathers, they are read from the screen, and are neither made nor kept twice.
#pragma once

#include <algorithm>

#include <fmoe/plan/plan.hpp>

namespace fmoe::cpu {

// Returns the number of the screened weight whose rows a step of the prologue makes, if there is
// one.
inline std::optional<extent> screen_with_rows(const step_plan& p, const step& s) {
  constexpr extent row_unit = 16;  // a screen pads its rows to as much
  const auto* const r = get_if<reduce_step>(&s);
  const bool is_transposition = r != nullptr && r->out.size() == 2 && r->summed.empty() &&
                                r->epilogues.empty() && r->a.offset == 0 && r->c.offset == 0;
  if (!is_transposition) return {};
  const nest_axis row = r->out[0], along = r->out[1];
  for (extent i = 0; i < p.weights.size(); ++i) {
    const packed_weight& w = p.weights[i];
    if (!w.screened || w.storage != r->a.storage || w.K % row_unit != 0) continue;
    if (w.depth.size() != 1 || w.columns.size() != 1) continue;
    const bool is_same = row.length == w.N && row.a == w.columns[0].stride && row.c == w.K &&
                         along.length == w.K && along.a == w.depth[0].stride && along.c == 1;
    if (is_same) return i;
  }
  return {};
}

inline void read_screened_rows(step_plan& p) {
  const auto is_packed = [&](extent storage) {
    return std::ranges::count(p.weights, storage, &packed_weight::storage) != 0;
  };
  for (extent i = 0; i < p.prologue.size();) {
    const auto weight = screen_with_rows(p, p.prologue[i]);
    const extent made = weight ? get<reduce_step>(p.prologue[i]).c.storage : 0;
    if (!weight || p.storages[made].where != storage_row::kind::constant || is_packed(made)) {
      ++i;
      continue;
    }
    const extent at = p.storages[made].offset;
    extent end = p.constants;
    for (const storage_row& s : p.storages)
      if (s.where == storage_row::kind::constant && s.offset > at) end = std::min(end, s.offset);
    for (storage_row& s : p.storages)
      if (s.where == storage_row::kind::constant && s.offset > at) s.offset -= end - at;
    p.constants -= end - at;
    p.storages[made].where = storage_row::kind::screen;
    p.storages[made].source = *weight;
    p.prologue.erase(p.prologue.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace fmoe::cpu
