// SPDX-License-Identifier: MIT
// c[rows, columns] (+)= a[rows, depth] B, where B is packed in panels (pack.hpp) of T, or of 16-bit
// numbers that are widened when they are read. In every kernel an element is the sum of blocks of
// k, added in order; each block is summed from 0 in plain order by the same operation. So the bits
// of a row depend only on the row, and rounding errors of long sums stay small.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <utility>

#include <fmoe/backend/cpu/kernels/gemm_neon.hpp>
#include <fmoe/backend/cpu/kernels/gemm_tile.hpp>
#include <fmoe/base/function_ref.hpp>

namespace fmoe::cpu {

template <class T>
struct gemm_args {
  extent rows, columns, depth;
  const T* a;
  extent lda;
  gemm_panels<T> panels;
  extent panel_depth;  // the depth of the whole parameter: the distance between two panels
  T* c;
  extent ldc;
  bool accumulate;          // add the sums to c; otherwise they replace it
  extent block;             // number of terms that are summed separately
  const std::byte* next;    // the weights that the following step reads first, or null
  extent own_ahead = 2048;  // bytes ahead of their use at which lines of a panel come into L1
  extent side_by_side = 4;  // at most so many panels are read in turn for few rows
  extent cache = extent{1} << 20;  // bytes of L2, half of which rows and panels take each
  extent group = 0;  // so many panels meet a tile of rows in turn; 0: as the cache has it
  // The terms of each block, which are `depth` in all; null: `block` each.
  const extent* counts = nullptr;
};

// S is the type in the panels. For int16_pair and bf16_pair, a holds pairs, too, and depth counts
// pairs; those of integers make one block, and c holds integers of 32 bits. Places are those of the
// data for later.
template <class T, class S, class Arch, extent Rows, extent Panels, extent Places, bool Stream>
FMOE_NOINLINE void gemm_kernel(const gemm_tile<T>& tile) noexcept {
  constexpr extent lane = lanes<T, Arch>, vectors = 2 * Panels, row_bytes = 2 * lane * sizeof(S),
                   scale_bytes = 2 * lane * size_of_scale<S>,
                   line = std::min<extent>(64, row_bytes);
  // Of many rows of a, every third has a pointer, and the two rows after it are one and two strides
  // away. A compiler that knew how the pointers are related would keep a stride for each row, some
  // of them in registers of vectors, and to fetch one from there takes the place of a multiply-add.
  // Kernels of narrow panels take two k at a time and need it with fewer rows, too.
  constexpr extent apart = Rows > 8 || is_widened<T, S> ? 3 : Rows;
  const extent lda = tile.lda;
  const T* from_a[divide_up(Rows, apart)];
  FMOE_ROUNDS(5)
  for (extent m = 0; m < Rows; m += apart) {
    from_a[m / apart] = tile.a + m * lda;
    FMOE_KEEP_POINTER(from_a[m / apart]);
  }
  const std::byte* __restrict b = tile.b;
  const extent next_step = tile.next_step, own_ahead = tile.own_ahead;
  const std::byte *next = tile.next, *second = next + tile.depth * next_step;
  const extent ldc = tile.ldc, stride = tile.panel_bytes;
  T* __restrict const c = tile.c;
  vec<T, Arch> sums[Rows][vectors];
  const auto clear = [&]() FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_ROUNDS(14)
    for (extent m = 0; m < Rows; ++m) {
      FMOE_ROUNDS(8)
      for (extent n = 0; n < vectors; ++n) sums[m][n] = vec<T, Arch>(T(0));
    }
  };
  clear();
  FMOE_ROUNDS(14)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; ++n) FMOE_PREFETCH_TO_WRITE(c + m * ldc + n * lane);
  }
  column_scales<T, Arch> scales[vectors];  // for 8-bit weights
  // Narrow panels take two k at a time, and half the instructions for addresses and prefetches. The
  // two fetch one line of each place for later, which is enough: a tile alone has two places.
  // Twelve rows leave too few registers for the constants of two k with shuffled integers.
  constexpr bool in_pairs =
      !Stream && is_avx512<Arch> && is_widened<T, S> && !(is_shuffled<S> && Rows > 11);
  const auto row = [&](extent j, extent ahead) FMOE_ALWAYS_INLINE_LAMBDA {
    vec<T, Arch> w[vectors];
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; n += 2) {
      const std::byte* const from = b + n / 2 * stride + j * row_bytes;
      load_row<T, Arch>(reinterpret_cast<const S*>(from), scales + n, w + n);
      for (extent at = 0; at < row_bytes; at += line)
        if ((j * row_bytes + at) % 64 == 0) FMOE_PREFETCH(from + (Stream ? ahead : own_ahead) + at);
    }
    FMOE_ROUNDS(14)
    for (extent m = 0; m < Rows; ++m) {
      const vec<T, Arch> x(from_a[m / apart][m % apart * lda + j]);
      FMOE_ROUNDS(8)
      for (extent n = 0; n < vectors; ++n) {
        if constexpr (is_int16_pair<S>)
          sums[m][n] = add_dots<S::is_fused, Arch>(x, w[n], sums[m][n]);
        else if constexpr (std::is_same_v<S, bf16_pair>)
          sums[m][n] = add_bf16_dots<Arch>(x, w[n], sums[m][n]);
        else if constexpr (Rows >= streamed_rows) sums[m][n] = fmadd_registers(x, w[n], sums[m][n]);
        else sums[m][n] = fmadd(x, w[n], sums[m][n]);
      }
    }
  };
  const auto advance = [&](extent k) FMOE_ALWAYS_INLINE_LAMBDA {
    if (Places > 0) FMOE_PREFETCH_FOR_LATER(next);
    if (Places > 1) FMOE_PREFETCH_FOR_LATER(second);
    next += next_step * k;
    second += next_step * k;
    FMOE_ROUNDS(5)
    for (const T*& of_rows : from_a) of_rows += k;
    b += row_bytes * k;
  };
  const auto rows = [&](extent count, extent ahead) FMOE_ALWAYS_INLINE_LAMBDA {
    if constexpr (in_pairs)
      for (; count >= 2; count -= 2) {
        row(0, ahead);
        row(1, ahead);
        advance(2);
      }
    for (; count > 0; --count) {
      row(0, ahead);
      advance(1);
    }
  };
  const auto steps = [&](extent count, extent ahead) FMOE_ALWAYS_INLINE_LAMBDA {
    if constexpr (is_panel_int8<S>) {
      using scale = typename S::scale;
      for (; count > 0; count -= std::min(count, S::group)) {
        FMOE_ROUNDS(8)
        for (extent n = 0; n < vectors; ++n)
          scales[n] = scales_of<S>(
              load_as<T, Arch>(reinterpret_cast<const scale*>(b + n / 2 * stride) + n % 2 * lane));
        b += scale_bytes;
        rows(std::min(count, S::group), ahead);
      }
    } else {
      rows(count, ahead);
    }
  };
  // 4 KB are in flight for 1 and 2 rows (more is slower from L3), and 8 KB for more rows (DRAM).
  // Near the end of its panel a stream already fetches the panel that it takes next.
  constexpr extent ahead = (Rows <= 2 ? 4096 : 8192) / Panels, near_end = ahead / row_bytes;
  constexpr extent group = group_of<S>;
  const extent depth_bytes = tile.depth * row_bytes + divide_up(tile.depth, group) * scale_bytes;
  bool first = !tile.accumulate;
  const extent* counts = tile.counts;
  for (extent left = tile.depth; left > 0 || first;) {
    const extent count = counts != nullptr ? *counts++ : std::min(left, tile.block);
    if constexpr (Stream) {
      const extent own = left > near_end ? std::min(count, (left - near_end) / group * group) : 0;
      steps(own, ahead);
      steps(count - own, ahead + Panels * stride - depth_bytes);
    } else {
      steps(count, 0);
    }
    FMOE_ROUNDS(14)
    for (extent m = 0; m < Rows; ++m) {
      FMOE_ROUNDS(8)
      for (extent n = 0; n < vectors; ++n) {
        T* const to = c + m * ldc + n * lane;
        store<T, Arch>(to, first ? sums[m][n] : load<T, Arch>(to) + sums[m][n]);
      }
    }
    clear();
    first = false;
    left -= count;
  }
}

// Writes the weights of `depth` rows of a panel as Ts: those that the kernels of S compute with.
template <class T, class S, class Arch>
void widen_panel(const std::byte* from, extent depth, T* to) noexcept {
  constexpr extent lane = lanes<T, Arch>, row = 2 * lane;
  vec<T, Arch> w[2];
  column_scales<T, Arch> scales[2] = {};
  for (extent k = 0; k < depth; ++k, from += row * sizeof(S), to += row) {
    if constexpr (is_panel_int8<S>)
      if (k % S::group == 0) {
        const auto* const of = reinterpret_cast<const typename S::scale*>(from);
        for (extent n = 0; n < 2; ++n) scales[n] = scales_of<S>(load_as<T, Arch>(of + n * lane));
        from += row * size_of_scale<S>;
      }
    load_row<T, Arch>(reinterpret_cast<const S*>(from), scales, w);
    for (extent n = 0; n < 2; ++n) store<T, Arch>(to + n * lane, w[n]);
  }
}

// 3 to 6 rows run as one tile after the other, each of which fetches all of the next panel, if half
// of L2 holds that panel; this is 1.3 times as fast from DRAM as streams. Longer panels are
// streamed, and so are those of 8 bits, and all panels for 1 and 2 rows.
inline constexpr extent lone_rows = 3, lone_panel = extent{128} << 10;

// The heights of several tiles of a panel differ by at most one row, so none is lower than half of
// the highest.
template <class T, class S, class Arch, extent Rows, extent Places>
constexpr gemm_kernel_pointer<T> gemm_tile_kernel() {
  constexpr bool is_lone = Rows < gemm_rows<T, S, Arch> / 2;
  if constexpr (is_lone && Places == 1) return nullptr;
  else if constexpr (is_neon<Arch>) return &neon_kernel<T, S, Arch, Rows, 1, Places, false>;
  else return &gemm_kernel<T, S, Arch, Rows, 1, Places, false>;
}

template <class T, class S, class Arch, extent Places>
inline constexpr auto gemm_tiles = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{
      gemm_tile_kernel<T, S, Arch, I + lone_rows, Places>()...};
}(std::make_index_sequence<gemm_rows<T, S, Arch> - lone_rows + 1>{});

template <class T, class S, class Arch, extent Rows, extent Panels>
constexpr gemm_kernel_pointer<T> gemm_stream_kernel() {
  if constexpr (is_neon<Arch>) return &neon_kernel<T, S, Arch, Rows, Panels, 0, true>;
  else return &gemm_kernel<T, S, Arch, Rows, Panels, 0, true>;
}

template <class T, class S, class Arch, extent Panels>
inline constexpr auto gemm_streams = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<T>, sizeof...(I)>{
      gemm_stream_kernel<T, S, Arch, I + 1, std::min(Panels, streamed_panels<Arch>(I + 1))>()...};
}(std::make_index_sequence<streamed_rows>{});

// From so many tiles on, a panel is widened once for all of them, and not by each in registers.
// With AVX-512 this never pays for 16 bits: it takes 3 to 7 clocks for each k to write two vectors,
// a tile of 12 rows takes 1 to 2 to widen them.
template <class T, class S, class Arch>
constexpr extent least_widened_tiles() {
  if constexpr (!is_widened<T, S>) return all;
  else if constexpr (is_panel_int8<S>) return is_avx512<Arch> ? 6 : 2;
  else return is_avx512<Arch> ? all : 8;
}

template <class T, class S, class Arch>
const gemm_kernels<T>& plain_kernels();

template <class T, class S, class Arch>
inline constexpr gemm_kernels<T> gemm_kernels_of = [] {
  return gemm_kernels<T>{panel_width<T, Arch> * sizeof(S),
                         group_of<S>,
                         panel_width<T, Arch> * size_of_scale<S>,
                         gemm_rows<T, S, Arch>,
                         {gemm_tiles<T, S, Arch, 1>.data(), gemm_tiles<T, S, Arch, 2>.data()},
                         {gemm_streams<T, S, Arch, 1>.data(), gemm_streams<T, S, Arch, 2>.data(),
                          gemm_streams<T, S, Arch, 4>.data()},
                         least_widened_tiles<T, S, Arch>(),
                         is_widened<T, S> ? &widen_panel<T, S, Arch> : nullptr,
                         is_widened<T, S> ? &plain_kernels<T, T, Arch> : nullptr};
}();

// The kernels for panels of numbers that are stored as S.
template <class T, class S, class Arch>
const gemm_kernels<T>& plain_kernels() {
  return gemm_kernels_of<T, S, Arch>;
}

// Runs a tile whose panel is wider than c on a copy of c, so that nothing beyond column `columns`
// is read or written.
template <class T, class Arch>
void run_narrow(gemm_kernel_pointer<T> kernel, gemm_tile<T> tile, extent rows,
                extent columns) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  alignas(64) T copy[most_rows<T, Arch> * width] = {};
  T* const c = std::exchange(tile.c, copy);
  const extent ldc = std::exchange(tile.ldc, width);
  if (tile.accumulate)
    for (extent m = 0; m < rows; ++m)
      for (extent n = 0; n < columns; ++n) copy[m * width + n] = c[m * ldc + n];
  kernel(tile);
  for (extent m = 0; m < rows; ++m)
    for (extent n = 0; n < columns; ++n) c[m * ldc + n] = copy[m * width + n];
}

// So many k of a panel are widened at a time, and stay in L1.
inline constexpr extent widened_depth = 256;

// Calls done(row, rows, column, columns) for every finished tile of c while the tile is in L1.
template <class T, class Arch>
FMOE_NOINLINE void gemm(const gemm_args<T>& g,
                        function_ref<void(extent, extent, extent, extent)> done) noexcept {
  constexpr extent width = panel_width<T, Arch>;
  const gemm_kernels<T>& kernels = *g.panels.kernels;
  const extent panels = divide_up(g.columns, width), panel_bytes = kernels.bytes(g.panel_depth);
  const auto run = [&](gemm_kernel_pointer<T> kernel, gemm_tile<T> tile, extent row, extent rows,
                       extent panel, extent count, bool is_last) FMOE_NOINLINE_LAMBDA {
    const extent column = panel * width, columns = std::min(count * width, g.columns - column);
    tile.a += row * g.lda;
    tile.c += row * g.ldc + column;
    if (columns == count * width) kernel(tile);
    else run_narrow<T, Arch>(kernel, tile, rows, columns);
    if (!is_last) return;
    for (extent n = 0; n < columns; n += width)
      done(row, rows, column + n, std::min(width, columns - n));
  };

  if (g.rows == 0) return;
  gemm_tile<T> tile{g.depth, g.a,     g.lda, g.panels.data, panel_bytes, g.c, g.ldc, g.accumulate,
                    g.block, nullptr, 0,     g.own_ahead,   g.counts};
  const bool few_are_streamed =
      kernels.scale_bytes != 0 || g.depth * kernels.row_bytes > lone_panel;
  if (g.rows < lone_rows || (g.rows <= streamed_rows && few_are_streamed)) {
    const extent whole = g.columns / width,
                 together = std::bit_floor(
                     std::min(streamed_panels<Arch>(g.rows), std::max<extent>(1, g.side_by_side)));
    for (extent p = 0; p < panels;) {
      const extent count = p + together > whole ? 1 : together;
      run(kernels.streams[std::bit_width(count) - 1][g.rows - 1], tile, 0, g.rows, p, count, true);
      p += count;
      tile.b = g.panels.data + p * panel_bytes;
    }
    return;
  }

  // The tiles of a panel fetch the next one together, each an even part of it: more at a time would
  // wait for memory. Few tiles fetch from two places at a time, which keeps more of memory busy.
  // With many tiles a k asks for a line that another one has asked for, which is cheaper than
  // kernels of their own.
  constexpr extent few = 3;
  const extent tiles = divide_up(g.rows, kernels.most), places = tiles <= few ? 2 : 1;
  tile.next_step = divide_up(kernels.row_bytes, places * tiles);
  const bool is_widened = tiles >= kernels.least_tiles && g.block <= widened_depth && g.depth > 0;
  const auto* const of_tiles = (is_widened ? kernels.of_widened() : kernels).tiles[places - 1];
  const auto panel = [&](extent p) {  // and behind the last one what is read next
    if (p >= panels && g.next != nullptr) return g.next;
    return g.panels.data + std::min(p, panels - 1) * panel_bytes;
  };
  if (!is_widened) {
    // Rows that leave L2 while they meet one panel meet several at a time.
    const bool leave = g.rows * g.depth * sizeof(T) > g.cache / 2;
    const extent group = g.group != 0 ? g.group
                         : leave      ? std::max<extent>(1, g.cache / 2 / kernels.bytes(g.depth))
                                      : 1;
    for (extent first = 0; first < panels; first += group)
      for (extent t = 0, row = 0; t < tiles; ++t) {
        const extent rows = divide_up(g.rows - row, tiles - t);
        for (extent p = first; p < std::min(first + group, panels); ++p) {
          tile.b = panel(p);
          tile.next = panel(p + group) + places * t * g.depth * tile.next_step;
          run(of_tiles[rows - lone_rows], tile, row, rows, p, 1, true);
        }
        row += rows;
      }
    return;
  }
  alignas(64) T wide[widened_depth * width];
  tile.b = reinterpret_cast<const std::byte*>(wide);
  for (extent p = 0; p < panels; ++p) {
    const std::byte* b = panel(p);
    for (extent k = 0; k < g.depth;) {
      tile.depth = std::min(g.block, g.depth - k);
      tile.a = g.a + k;
      tile.accumulate = g.accumulate || k > 0;
      kernels.widen(b, tile.depth, wide);
      k += tile.depth;
      b += kernels.bytes(tile.depth);
      const std::byte* const next = k < g.depth ? b : panel(p + 1);
      for (extent t = 0, row = 0; t < tiles; ++t) {
        const extent rows = divide_up(g.rows - row, tiles - t);
        tile.next = next + places * t * tile.depth * tile.next_step;
        run(of_tiles[rows - lone_rows], tile, row, rows, p, 1, k == g.depth);
        row += rows;
      }
    }
  }
}

}  // namespace fmoe::cpu
