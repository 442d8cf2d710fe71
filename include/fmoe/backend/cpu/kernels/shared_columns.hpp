// SPDX-License-Identifier: MIT
// The columns of a product of few rows, cut into parts for several threads: no bit depends on where
// it is cut.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/backend/cpu/parallel.hpp>

namespace fmoe::cpu {

// run(product, first column, end) for parts of `products` products of [rows, depth] with [depth,
// columns].
template <class T, class Arch>
void shared_columns(extent threads, extent rows, extent depth, extent columns, extent products,
                    function_ref<void(extent, extent, extent)> run) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  constexpr extent together = 4;  // panels that are streamed side by side
  // A panel's time is that of its arithmetic or of its memory; a row's arithmetic takes a sixth of
  // what one read from DRAM does. Parts are no shorter than some 20 microseconds, what handing them
  // over costs ten times over, and a few for each thread, because threads are interrupted.
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
