// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] B for blocks of few terms, as a table of many experts gets
// them: gemm would read and write a tile of c after each block. Here a tile is lower, so that both
// its sums and the total of its blocks are in registers, and c is read and written once. The sums
// are those of gemm, in its order and with its bits.
#pragma once

#include <array>
#include <utility>

#include <fmoe/backend/cpu/kernels/gemm.hpp>

namespace fmoe::cpu {

// 7 x 2 sums and as many totals take 28 of the 32 AVX-512 registers; two weights and one number of
// a take three. Sets of 16 registers would hold too few sums to keep the multipliers busy.
inline constexpr extent block_sum_rows = 7;

// One tile. Meanwhile the lines of c at `next` come into L1, which the next tile writes.
template <class T>
struct block_sum_tile {
  const T* a;
  extent lda;
  const T* panel;
  T* c;
  extent ldc;
  T* next;
};

template <class T, class Arch, extent Rows>
FMOE_NOINLINE void block_sum_kernel(const block_sum_tile<T>& tile, const extent* counts,
                                    extent depth, bool adds) noexcept {
  constexpr extent lane = lanes<T, Arch>;
  const extent lda = tile.lda, ldc = tile.ldc;
  T* const c = tile.c;
  const auto each = [](const auto& f) FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_ROUNDS(7)
    for (extent m = 0; m < Rows; ++m) {
      FMOE_ROUNDS(2)
      for (extent n = 0; n < 2; ++n) f(m, n);
    }
  };
  vec<T, Arch> sums[Rows][2], totals[Rows][2];
  each([&](extent m, extent n) FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_PREFETCH_TO_WRITE(tile.next + m * ldc + n * lane);
    totals[m][n] = vec<T, Arch>(T(0));
  });
  if (adds)
    each([&](extent m, extent n)
             FMOE_ALWAYS_INLINE_LAMBDA { totals[m][n] = load<T, Arch>(c + m * ldc + n * lane); });
  const T* b = tile.panel;
  const T* from_a[divide_up(Rows, 3)];  // every third row, as in gemm_kernel
  FMOE_ROUNDS(3)
  for (extent m = 0; m < Rows; m += 3) {
    from_a[m / 3] = tile.a + m * lda;
    FMOE_KEEP_POINTER(from_a[m / 3]);
  }
  for (extent left = depth, count; left > 0; left -= count) {
    count = *counts++;
    each([&](extent m, extent n) FMOE_ALWAYS_INLINE_LAMBDA { sums[m][n] = vec<T, Arch>(T(0)); });
    for (extent k = 0; k < count; ++k) {
      const vec<T, Arch> w[] = {load<T, Arch>(b), load<T, Arch>(b + lane)};
      FMOE_ROUNDS(7)
      for (extent m = 0; m < Rows; ++m) {
        const vec<T, Arch> x(from_a[m / 3][m % 3 * lda]);
        FMOE_ROUNDS(2)
        for (extent n = 0; n < 2; ++n) sums[m][n] = fmadd_registers(x, w[n], sums[m][n]);
      }
      FMOE_ROUNDS(3)
      for (const T*& of_rows : from_a) ++of_rows;
      b += 2 * lane;
    }
    if (left == depth && !adds)
      each([&](extent m, extent n) FMOE_ALWAYS_INLINE_LAMBDA { totals[m][n] = sums[m][n]; });
    else
      each([&](extent m, extent n)
               FMOE_ALWAYS_INLINE_LAMBDA { totals[m][n] = totals[m][n] + sums[m][n]; });
  }
  each([&](extent m, extent n)
           FMOE_ALWAYS_INLINE_LAMBDA { store<T, Arch>(c + m * ldc + n * lane, totals[m][n]); });
}

// What gemm computes from the same arguments, whose panels are of T and whose `counts` are not
// null.
template <class T, class Arch>
void block_sums(gemm_args<T> g) noexcept {
  constexpr extent width = panel_width<T, Arch>, in_l1 = extent{24} << 10;
  if constexpr (is_avx512<Arch>) {
    constexpr auto kernels = []<extent... I>(std::index_sequence<I...>) {
      return std::array{&block_sum_kernel<T, Arch, I + 1>...};
    }(std::make_index_sequence<block_sum_rows>{});
    const auto* const panels = reinterpret_cast<const T*>(g.panels.data);
    const extent panel_size = g.panel_depth * width, whole = g.columns / width,
                 together =
                     std::max<extent>(1, in_l1 / sizeof(T) / std::max<extent>(1, panel_size)),
                 tiles = divide_up(g.rows, block_sum_rows);
    for (extent first = 0; first < whole; first += together)
      for (extent t = 0, row = 0; t < tiles; ++t) {
        const extent rows = divide_up(g.rows - row, tiles - t),
                     end = std::min(whole, first + together);
        T* const c = g.c + row * g.ldc;
        for (extent p = first; p < end; ++p) {
          T *const here = c + p * width, *const below = t + 1 < tiles
                                                            ? c + rows * g.ldc + first * width
                                                            : here;
          kernels[rows - 1]({g.a + row * g.lda, g.lda, panels + p * panel_size, here, g.ldc,
                             p + 1 < end ? here + width : below},
                            g.counts, g.depth, g.accumulate);
        }
        row += rows;
      }
    g.columns -= whole * width;
    g.c += whole * width;
    g.panels.data += whole * panel_size * sizeof(T);
  }
  if (g.columns != 0) gemm<T, Arch>(g, [](auto...) {});
}

}  // namespace fmoe::cpu
