// SPDX-License-Identifier: MIT
// One register tile of a product: what its kernel is told, how large it is, and how it reads the
// weights of a panel.
#pragma once

#include <cstddef>

#include <fmoe/backend/cpu/kernels/pack.hpp>

namespace fmoe::cpu {

template <class T>
struct gemm_tile;

template <class T>
using gemm_kernel_pointer = void (*)(const gemm_tile<T>&) noexcept;

// The kernels of one architecture for panels of one stored type. Entry i of `tiles` is for tiles of
// lone_rows + i rows; the two arrays fetch the data for later from one place or from two. Streams
// are for 1 to 6 rows.
template <class T>
struct gemm_kernels {
  extent row_bytes;           // bytes of a panel for one k
  extent group, scale_bytes;  // 8-bit weights have so many bytes of scales before each group of k
  extent most;
  const gemm_kernel_pointer<T>* tiles[2];
  const gemm_kernel_pointer<T>* streams[3];  // over one, two and four panels, if as many suit
  // From so many tiles on, a panel is widened once for all: `widen` does so for `depth` k, and then
  // `of_widened` returns the kernels.
  extent least_tiles;
  void (*widen)(const std::byte* panel, extent depth, T* wide) noexcept;
  const gemm_kernels& (*of_widened)();

  // The bytes of a panel for so many k from its beginning, which are whole groups or all of it.
  extent bytes(extent depth) const {
    return depth * row_bytes + divide_up(depth, group) * scale_bytes;
  }
};

template <class T>
struct gemm_panels {  // a packed parameter, or a part of it
  const std::byte* data;
  const gemm_kernels<T>* kernels;
};

// One register tile: rows × panels of c.
template <class T>
struct gemm_tile {
  extent depth;
  const T* a;
  extent lda;
  const std::byte* b;
  extent panel_bytes;
  T* c;
  extent ldc;
  bool accumulate;
  extent block;
  // The data to prefetch into L2, from one place or in two halves side by side: for every k so many
  // bytes of each.
  const std::byte* next;
  extent next_step;
  extent own_ahead;  // bytes ahead of their use at which lines of the panel come into L1
  const extent* counts = nullptr;  // gemm_args::counts
};

// The accumulators take 14 × 2 of the 32 AVX-512 registers, and 6 × 2 of 16 otherwise; the other
// registers hold two weights and one activation. To widen weights takes some, too. On ARM64 they
// take 9 × 2 of 32 registers (gemm_neon.hpp).
template <class S>
inline constexpr extent neon_rows = is_panel_int8<S> ? 7 : 9;
template <class T, class S, class Arch>
inline constexpr extent gemm_rows = is_neon<Arch>                             ? neon_rows<S>
                                    : !is_avx512<Arch>                        ? 6
                                    : std::is_same_v<S, T> || is_in_groups<S> ? 14
                                                                              : 12;

// The rows of the highest tile of all kernels: two tiles of AMX (tile_product.hpp).
template <class T, class Arch>
inline constexpr extent most_rows = is_avx512<Arch> && sizeof(T) == 4 ? 32 : gemm_rows<T, T, Arch>;

// The number of panels that are taken side by side when there are few rows, so that several streams
// of weights are under way. More accumulators for one element would do the same, but would change
// the order of its sum.
inline constexpr extent streamed_rows = 6;
template <class Arch>
constexpr extent streamed_panels(extent rows) {
  if constexpr (is_avx512<Arch>) return rows <= 2 ? 4 : 2;
  else if constexpr (is_neon<Arch>) return rows <= 2 ? 4 : rows <= 5 ? 2 : 1;
  else return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
}

// In a panel of 8-bit weights: the k that share a scale, and the bytes of a scale.
template <class S>
inline constexpr extent group_of = 1;
template <class S>
inline constexpr extent size_of_scale = 0;
template <class Q, class Arch, int8_form Form>
inline constexpr extent group_of<panel_int8<Q, Arch, Form>> = panel_int8<Q, Arch>::group;
template <class Q, class Arch, int8_form Form>
inline constexpr extent size_of_scale<panel_int8<Q, Arch, Form>> =
    sizeof(typename panel_int8<Q, Arch>::scale);

template <class T, class S>
inline constexpr bool is_widened = !std::is_same_v<S, T> && !is_in_groups<S>;

// Loads the two vectors of a panel's row. 8-bit weights have scales.
template <class T, class Arch, class S>
FMOE_ALWAYS_INLINE void load_row(const S* row, const column_scales<T, Arch>* scales,
                                 vec<T, Arch>* w) noexcept {
  constexpr extent lane = lanes<T, Arch>;
  if constexpr (is_neon<Arch> && is_panel_int8<S>) {
    load_two<T, Arch>(&row->value, w[0], w[1]);
    for (extent n = 0; n < 2; ++n) w[n] = w[n] * scales[n].factor;
  } else if constexpr (is_neon<Arch>) {
    load_two<T, Arch>(row, w[0], w[1]);
  } else if constexpr (std::is_same_v<S, bf16>) {
    load_pairs<T, Arch>(row, w[0], w[1]);
  } else if constexpr (is_panel_int8<S>) {
    w[0] = load_scaled<T, Arch>(row, scales[0]);
    w[1] = load_scaled<T, Arch>(row + lane, scales[1]);
  } else {
    w[0] = load_as<T, Arch>(row);
    w[1] = load_as<T, Arch>(row + lane);
  }
}

}  // namespace fmoe::cpu
