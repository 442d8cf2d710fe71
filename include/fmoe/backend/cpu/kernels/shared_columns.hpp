// SPDX-License-Identifier: MIT
// Cuts the columns of a product of few rows into parts for several threads. No bit depends on where
// they are cut.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/backend/cpu/parallel.hpp>

namespace fmoe::cpu {

// The threads that share a product of few rows, and what a weight of it takes on each of them: the
// seconds to read it, and those of its arithmetic with one row.
struct product_threads {
  crew& threads = crew::alone();
  double read = 0, multiply_add = 0;
};

// Calls run(product, first column, end) for parts of `products` products of [rows, depth] with
// [depth, columns].
template <class T, class Arch>
void shared_columns(const product_threads& on, extent rows, extent depth, extent columns,
                    extent products, function_ref<void(extent, extent, extent)> run) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  constexpr extent together = 4;  // panels that are streamed side by side
  // A part takes several times as long as it takes to hand it over. There are a few for each
  // thread, because threads are interrupted, and as many for each.
  constexpr double least = 5e-6;
  constexpr extent each = 4;
  const extent panels = divide_up(columns, width), all = products * panels;
  const double seconds = static_cast<double>(products * columns * depth) *
                         std::max(on.read, static_cast<double>(rows) * on.multiply_add);
  const extent threads = on.threads.size();
  const auto some = static_cast<extent>(seconds / least);
  const extent parts = threads == 1     ? 1
                       : some < threads ? std::max<extent>(1, some)
                                        : std::min(some / threads, each) * threads;
  const auto cut = [&](extent part) {
    return part == parts ? all : all * part / parts / together * together;
  };
  on.threads.run(parts, [&](extent part) noexcept {
    for (extent at = cut(part), end = cut(part + 1); at < end;) {
      const extent first = at % panels, count = std::min(panels - first, end - at);
      run(at / panels, first * width, std::min(columns, (first + count) * width));
      at += count;
    }
  });
}

}  // namespace fmoe::cpu
