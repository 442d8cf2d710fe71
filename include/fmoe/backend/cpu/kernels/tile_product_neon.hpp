// SPDX-License-Identifier: MIT
// Kernels of gemm (gemm.hpp) with ARM64's matrix instructions. One instruction multiplies two rows
// by two columns and adds the products to four sums; each row and each column has 8 bytes, which
// are neighbours along k. A row of a panel holds 4 bytes of each column, so two rows, interleaved,
// make the columns. A row of integers of 16 bits is two rows of 8 bits: the upper and lower halves.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/gemm_tile.hpp>

namespace fmoe::cpu {

// The pairs of columns of a panel, and of how many pairs of rows at most all sums are in registers.
inline constexpr extent column_pairs = 4, most_row_pairs = 4;

// True if the CPU multiplies matrices of such numbers.
template <tile_numbers Of, class Arch>
bool has_matrices() {
#if defined(__aarch64__) && FMOE_ASSEMBLY
  static const bool has =
      Of == tile_numbers::int8_quads ? detail::has_int8_matrices() : detail::has_bf16_matrices();
  return has;
#else
  return false;
#endif
}

#if defined(__aarch64__)

// Adds the products of `Pairs` pairs of rows with as many rows of a panel as a row has floats here,
// at most 4. row(i) is where these floats of row i stand.
template <tile_numbers Of, class Arch, extent Pairs>
FMOE_ALWAYS_INLINE void add_matrices_of(const auto& row, const std::byte* panel, extent floats,
                                        vec<float, Arch> (*sums)[column_pairs]) noexcept {
  constexpr extent lane = lanes<float, Arch>;
  const auto of_panel = [&](extent k, extent n) FMOE_ALWAYS_INLINE_LAMBDA {
    return k < floats
               ? load<float, Arch>(reinterpret_cast<const float*>(panel) + (2 * k + n) * lane)
               : vec<float, Arch>(0.f);
  };
  vec<float, Arch> x[2][Pairs];
  FMOE_ROUNDS(4)
  for (extent m = 0; m < Pairs; ++m) {
    const vec<float, Arch> first = load_part<float, Arch>(row(2 * m), floats),
                           second = load_part<float, Arch>(row(2 * m + 1), floats);
    x[0][m] = lower_halves<Arch>(first, second);
    x[1][m] = upper_halves<Arch>(first, second);
  }
  FMOE_ROUNDS(2)
  for (extent k = 0; k < 2; ++k) {
    FMOE_ROUNDS(2)
    for (extent n = 0; n < 2; ++n) {
      const vec<float, Arch> first = of_panel(2 * k, n), second = of_panel(2 * k + 1, n),
                             lower = lower_in_turn<Arch>(first, second),
                             upper = upper_in_turn<Arch>(first, second);
      FMOE_ROUNDS(4)
      for (extent m = 0; m < Pairs; ++m) {
        auto* const to = sums[m] + 2 * n;
        to[0] = add_matrices<Of, Arch>(x[k][m], lower, to[0]);
        to[1] = add_matrices<Of, Arch>(x[k][m], upper, to[1]);
        panel = pointer_after(panel, to[1]);  // all loads at once would not fit in registers
      }
    }
  }
}

template <extent Pairs, class Arch>
FMOE_ALWAYS_INLINE void clear_matrices(vec<float, Arch> (*sums)[column_pairs]) noexcept {
  FMOE_ROUNDS(4)
  for (extent m = 0; m < Pairs; ++m)
    for (extent n = 0; n < column_pairs; ++n) sums[m][n] = vec<float, Arch>(0.f);
}

// Sets the integers of rows by the columns of a panel, over `steps` quads of each row, which are a
// multiple of 4. place_in_row(m, k) is where quad k of row m stands.
template <class Arch, extent Rows>
FMOE_ALWAYS_INLINE void multiply_group(const auto& place_in_row, extent steps,
                                       const std::byte* panel,
                                       vec<float, Arch> (*integers)[2]) noexcept {
  constexpr extent pairs = divide_up(Rows, 2), row_bytes = 2 * lanes<float, Arch> * sizeof(float);
  vec<float, Arch> sums[pairs][column_pairs];
  clear_matrices<pairs>(sums);
  FMOE_ROUNDS(2)
  for (extent k = 0; k < steps; k += 4) {
    const auto row = [&](extent i) FMOE_ALWAYS_INLINE_LAMBDA {
      return place_in_row(std::min(i, Rows - 1), k);
    };
    add_matrices_of<tile_numbers::int8_quads, Arch, pairs>(row, panel + k * row_bytes, 4, sums);
  }
  FMOE_ROUNDS(6)
  for (extent m = 0; m < Rows; ++m)
    for (extent n = 0; n < 2; ++n) {
      const auto* const of_pair = sums[m / 2] + 2 * n;
      integers[m][n] = m % 2 == 0 ? lower_halves<Arch>(of_pair[0], of_pair[1])
                                  : upper_halves<Arch>(of_pair[0], of_pair[1]);
    }
}

// Multiplies rows by one panel after the other. Sums of bf16 numbers begin with each block, whose
// last floats are met by zeros. Integers make one block.
template <tile_numbers Of, class Arch, extent Rows>
FMOE_NOINLINE void multiply_matrices(const gemm_tile<float>& tile, extent panels,
                                     extent ahead) noexcept {
  constexpr bool has_halves = Of == tile_numbers::int8_quads;
  constexpr extent lane = lanes<float, Arch>, row_bytes = 2 * lane * sizeof(float),
                   pairs = has_halves ? Rows : divide_up(Rows, 2);
  if constexpr (pairs > most_row_pairs) {
    constexpr extent half = Rows / 2;
    gemm_tile<float> others = tile;
    others.a += half * tile.lda;
    others.c += half * tile.ldc;
    multiply_matrices<Of, Arch, half>(tile, panels, ahead);
    return multiply_matrices<Of, Arch, Rows - half>(others, panels, ahead);
  }
  const extent lda = tile.lda, depth = tile.depth, next_step = tile.next_step;
  for (extent p = 0; p < panels; ++p) {
    const std::byte* b = tile.b + p * tile.panel_bytes;
    const std::byte *next = tile.next, *second_next = next + depth * next_step;
    float* const c = tile.c + p * 2 * lane;
    const float* a = tile.a;
    vec<float, Arch> sums[pairs][column_pairs];
    const auto row = [&](extent i) FMOE_ALWAYS_INLINE_LAMBDA {
      return a + (has_halves ? i / 2 * lda + i % 2 * depth : std::min(i, Rows - 1) * lda);
    };
    const auto multiply = [&](extent floats) FMOE_ALWAYS_INLINE_LAMBDA {
      FMOE_ROUNDS(2)
      for (extent k = 0; k < 4; k += 2) {  // two rows of a panel are a line
        FMOE_PREFETCH(b + ahead + k * row_bytes);
        FMOE_PREFETCH_FOR_LATER(next + k * next_step);
        FMOE_PREFETCH_FOR_LATER(second_next + k * next_step);
      }
      add_matrices_of<Of, Arch, pairs>(row, b, floats, sums);
      a += floats;
      b += floats * row_bytes;
      next += floats * next_step;
      second_next += floats * next_step;
    };
    bool adds = !has_halves && tile.accumulate;
    const extent* counts = tile.counts;
    extent left = depth;
    do {
      const extent in_block = counts != nullptr ? *counts++ : std::min(left, tile.block);
      clear_matrices<pairs>(sums);
      for (extent i = 0; i < in_block / 4; ++i) multiply(4);
      if (in_block % 4 != 0) multiply(in_block % 4);
      const auto put = [&](extent m, extent n, const vec<float, Arch>& sum) {
        float* const to = c + m * tile.ldc + n * lane;
        store<float, Arch>(to, adds ? load<float, Arch>(to) + sum : sum);
      };
      FMOE_ROUNDS(4)
      for (extent m = 0; m < pairs; ++m)
        for (extent n = 0; n < 2; ++n) {
          const auto* const of_pair = sums[m] + 2 * n;
          const vec<float, Arch> first = lower_halves<Arch>(of_pair[0], of_pair[1]),
                                 second = upper_halves<Arch>(of_pair[0], of_pair[1]);
          if constexpr (has_halves) {
            put(m, n, joined_halves<Arch>(first, second));
          } else {
            put(2 * m, n, first);
            if (2 * m + 1 < Rows) put(2 * m + 1, n, second);
          }
        }
      adds = true;
      left -= in_block;
    } while (left > 0);
  }
}

#endif

}  // namespace fmoe::cpu
