// SPDX-License-Identifier: MIT
// Kernels of gemm (gemm.hpp) that multiply tiles of AMX. A step takes 16 floats of each row, which
// hold pairs of bf16 numbers or quads of integers of 8 bits, and 16 rows of a panel. Each block of
// an element's sum is cut in steps, the last of which is filled up with zeros, and each step is
// added to the element. So it makes no difference where among the blocks a product begins. On ARM64
// matrices are multiplied (tile_product_neon.hpp).
#pragma once

#include <array>
#include <cstring>
#include <utility>

#include <fmoe/backend/cpu/kernels/amx.hpp>
#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/tile_product_neon.hpp>

namespace fmoe::cpu {

// Pairs of bf16 numbers have two tiles of rows. Quads have the rows' upper halves in one tile and
// their lower halves in the other one (int8_quad).
template <tile_numbers Of, class Arch>
inline constexpr extent most_tile_rows = is_neon<Arch>                    ? 2 * most_row_pairs
                                         : Of == tile_numbers::bf16_pairs ? 2 * tile_rows
                                                                          : tile_rows;

#if FMOE_X86_64 && FMOE_ASSEMBLY

inline constexpr extent tile_floats = tile_bytes / sizeof(float), tile_panel_row = 2 * tile_bytes;

// Adds the products of a step, of the rows at a and those at `second`.
template <tile_numbers Of, bool Two>
FMOE_ALWAYS_INLINE void add_step(const float* a, const float* second, extent lda,
                                 const std::byte* b) noexcept {
  load_tile<4>(a, lda * sizeof(float));
  load_tile<6>(b, tile_panel_row);
  load_tile<7>(b + tile_bytes, tile_panel_row);
  add_tiles<Of, 0, 4, 6>();
  add_tiles<Of, 1, 4, 7>();
  if constexpr (Two) {
    load_tile<5>(second, lda * sizeof(float));
    add_tiles<Of, 2, 5, 6>();
    add_tiles<Of, 3, 5, 7>();
  }
}

// A step of fewer floats.
template <tile_numbers Of, bool Two>
FMOE_NOINLINE void add_short_step(const float* a, const float* second, extent lda,
                                  const std::byte* b, extent rows, extent second_rows,
                                  extent floats) noexcept {
  alignas(64) float of_rows[2][tile_rows * tile_floats] = {};
  alignas(64) std::byte of_columns[tile_rows * tile_panel_row] = {};
  for (extent m = 0; m < rows; ++m)
    std::memcpy(of_rows[0] + m * tile_floats, a + m * lda, floats * sizeof(float));
  for (extent m = 0; m < second_rows; ++m)
    std::memcpy(of_rows[1] + m * tile_floats, second + m * lda, floats * sizeof(float));
  std::memcpy(of_columns, b, floats * tile_panel_row);
  add_step<Of, Two>(of_rows[0], of_rows[1], tile_floats, of_columns);
}

template <bool Two>
FMOE_ALWAYS_INLINE void clear_sums() noexcept {
  clear_tile<0>();
  clear_tile<1>();
  if constexpr (Two) {
    clear_tile<2>();
    clear_tile<3>();
  }
}
template <bool Two>
FMOE_ALWAYS_INLINE void load_sums(const float* c, const float* second, extent bytes) noexcept {
  load_tile<0>(c, bytes);
  load_tile<1>(c + tile_floats, bytes);
  if constexpr (Two) {
    load_tile<2>(second, bytes);
    load_tile<3>(second + tile_floats, bytes);
  }
}
template <bool Two>
FMOE_ALWAYS_INLINE void store_sums(float* c, float* second, extent bytes) noexcept {
  store_tile<0>(c, bytes);
  store_tile<1>(c + tile_floats, bytes);
  if constexpr (Two) {
    store_tile<2>(second, bytes);
    store_tile<3>(second + tile_floats, bytes);
  }
}

// c gets 256 times the sums of upper halves plus those of lower ones, modulo 2^32.
template <class Arch>
FMOE_ALWAYS_INLINE void store_halves(float* c, extent ldc, extent rows) noexcept {
  constexpr extent width = 2 * tile_floats;
  alignas(64) float sums[2][tile_rows * width];
  store_sums<true>(sums[0], sums[1], tile_panel_row);
  for (extent m = 0; m < rows; ++m)
    for (extent n = 0; n < width; n += lanes<float, Arch>)
      store<float, Arch>(c + m * ldc + n,
                         joined_halves<Arch>(load<float, Arch>(sums[0] + m * width + n),
                                             load<float, Arch>(sums[1] + m * width + n)));
}

// Multiplies the rows of both tiles by one panel after the other. `Two` says that there is a second
// tile.
template <tile_numbers Of, class Arch, bool Two>
FMOE_NOINLINE void multiply_tiles(const gemm_tile<float>& tile, extent rows, extent second_rows,
                                  extent panels, extent ahead) noexcept {
  constexpr bool has_halves = Of == tile_numbers::int8_quads;
  const tiles_in_use in_use(rows, second_rows);
  const extent bytes = tile.ldc * sizeof(float);
  for (extent p = 0; p < panels; ++p) {
    const std::byte* b = tile.b + p * tile.panel_bytes;
    float *const c = tile.c + p * 2 * tile_floats, *const second_c = c + tile_rows * tile.ldc;
    const float *a = tile.a, *second_a = a + (has_halves ? tile.depth : tile_rows * tile.lda);
    const std::byte *next = tile.next, *second_next = next + tile.depth * tile.next_step;
    if (has_halves || !tile.accumulate) clear_sums<Two>();
    else load_sums<Two>(c, second_c, bytes);
    const extent* counts = tile.counts;
    for (extent left = tile.depth; left > 0;) {
      extent in_block = counts != nullptr ? *counts++ : std::min(left, tile.block);
      left -= in_block;
      while (in_block > 0) {
        const extent floats = std::min(tile_floats, in_block);
        in_block -= floats;
        for (extent at = 0; at < floats * tile_panel_row; at += 64) FMOE_PREFETCH(b + ahead + at);
        for (extent at = 0; at < floats * tile.next_step; at += 64) {
          FMOE_PREFETCH_FOR_LATER(next + at);
          FMOE_PREFETCH_FOR_LATER(second_next + at);
        }
        if (floats == tile_floats) add_step<Of, Two>(a, second_a, tile.lda, b);
        else add_short_step<Of, Two>(a, second_a, tile.lda, b, rows, second_rows, floats);
        a += floats;
        second_a += floats;
        b += floats * tile_panel_row;
        next += floats * tile.next_step;
        second_next += floats * tile.next_step;
      }
    }
    if constexpr (has_halves) store_halves<Arch>(c, tile.ldc, rows);
    else store_sums<Two>(c, second_c, bytes);
  }
}

#endif
#if FMOE_ASSEMBLY

template <tile_numbers Of, class Arch, extent Rows, extent Panels, bool Stream>
void tile_kernel(const gemm_tile<float>& tile) noexcept {
  constexpr extent far_ahead = 8192;
  const extent ahead = Stream ? far_ahead : tile.own_ahead;
#if FMOE_X86_64
  constexpr bool has_halves = Of == tile_numbers::int8_quads;
  constexpr extent rows = std::min(Rows, tile_rows);
  multiply_tiles<Of, Arch, has_halves || (Rows > tile_rows)>(
      tile, rows, has_halves ? Rows : Rows - rows, Panels, ahead);
#else
  multiply_matrices<Of, Arch, Rows>(tile, Panels, ahead);
#endif
}

template <tile_numbers Of, class Arch>
inline constexpr auto tile_tiles = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<float>, sizeof...(I)>{
      &tile_kernel<Of, Arch, I + lone_rows, 1, false>...};
}(std::make_index_sequence<most_tile_rows<Of, Arch> - lone_rows + 1>{});

template <tile_numbers Of, class Arch, extent Panels>
inline constexpr auto tile_streams = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<float>, sizeof...(I)>{
      &tile_kernel<Of, Arch, I + 1, std::min(Panels, streamed_panels<Arch>(I + 1)), true>...};
}(std::make_index_sequence<streamed_rows>{});

template <tile_numbers Of, class Arch>
inline constexpr gemm_kernels<float> tile_kernels_of{
    panel_width<float, Arch> * sizeof(float),
    1,
    0,
    most_tile_rows<Of, Arch>,
    {tile_tiles<Of, Arch>.data(), tile_tiles<Of, Arch>.data()},
    {tile_streams<Of, Arch, 1>.data(), tile_streams<Of, Arch, 2>.data(),
     tile_streams<Of, Arch, 4>.data()},
    all,
    nullptr,
    nullptr};

#endif

// Returns the kernels for panels of such numbers, or null on a CPU without tiles or matrices.
template <tile_numbers Of, class Arch>
const gemm_kernels<float>* tile_kernels() {
#if FMOE_ASSEMBLY
  if constexpr (is_avx512<Arch> || is_neon<Arch>)
    if (has_tiles<Arch>() || has_matrices<Of, Arch>()) return &tile_kernels_of<Of, Arch>;
#endif
  return nullptr;
}

}  // namespace fmoe::cpu
