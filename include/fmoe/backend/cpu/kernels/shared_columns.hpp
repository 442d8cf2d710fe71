// SPDX-License-Identifier: MIT
// Cuts the columns of a product of few rows into parts for several threads. No bit depends on where
// they are cut.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/backend/cpu/parallel.hpp>

namespace fmoe::cpu {

// Calls run(product, first column, end) for parts of `products` products of [rows, depth] with
// [depth, columns].
template <class T, class Arch>
void shared_columns(extent threads, extent rows, extent depth, extent columns, extent products,
                    function_ref<void(extent, extent, extent)> run) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  constexpr extent together = 4;  // panels that are streamed side by side
  // The time of a panel is that of its arithmetic or of its memory; the arithmetic of a row takes a
  // sixth of the time of reading the panel from DRAM. A part takes at least about 20 microseconds,
  // ten times the cost of handing it over. There are a few parts for each thread, because threads
  // are interrupted.
  constexpr extent least = 150'000, each = 4;
  const extent panels = divide_up(columns, width), all = products * panels;
  const extent parts =
      threads == 1
          ? 1
          : std::clamp<extent>(products * columns * depth * std::max<extent>(6, rows) / 6 / least,
                               1, each * threads);
  const auto cut = [&](extent part) {
    return part == parts ? all : all * part / parts / together * together;
  };
  parallel(parts, [&](extent part) noexcept {
    for (extent at = cut(part), end = cut(part + 1); at < end;) {
      const extent first = at % panels, count = std::min(panels - first, end - at);
      run(at / panels, first * width, std::min(columns, (first + count) * width));
      at += count;
    }
  });
}

}  // namespace fmoe::cpu
