// SPDX-License-Identifier: MIT
// The kernel of products for ARM64, whose multiply-adds take one lane of an operand: a vector of
// each row of a serves for as many k as it has lanes. Nine rows by two vectors take 18 registers
// for sums, nine for a and two for weights. Otherwise it is gemm_kernel (gemm.hpp), with its bits.
#pragma once

#include <fmoe/backend/cpu/kernels/gemm_tile.hpp>

namespace fmoe::cpu {

// S is the type in the panels; for int16_pair, a holds pairs, too, c integers of 32 bits, and depth
// counts pairs, which make one block; for int8_quad, a holds `depth` quads of upper halves and as
// many of lower ones. Places are those of the data for later.
template <class T, class S, class Arch, extent Rows, extent Panels, extent Places, bool Stream>
FMOE_NOINLINE void neon_kernel(const gemm_tile<T>& tile) noexcept {
  constexpr extent lane = lanes<T, Arch>, vectors = 2 * Panels, row_bytes = 2 * lane * sizeof(S),
                   scale_bytes = 2 * lane * size_of_scale<S>;
  const extent lda = tile.lda;
  const T* from_a[Rows];
  FMOE_ROUNDS(9)
  for (extent m = 0; m < Rows; ++m) from_a[m] = tile.a + m * lda;
  extent at = 0;  // k, which loads add to these pointers
  const std::byte* __restrict b = tile.b;
  const extent next_step = tile.next_step, own_ahead = tile.own_ahead;
  const std::byte *next = tile.next, *second = next + tile.depth * next_step;
  const extent ldc = tile.ldc, stride = tile.panel_bytes;
  T* __restrict const c = tile.c;
  vec<T, Arch> sums[Rows][vectors];
  const auto clear = [&]() FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_ROUNDS(9)
    for (extent m = 0; m < Rows; ++m) {
      FMOE_ROUNDS(8)
      for (extent n = 0; n < vectors; ++n) sums[m][n] = vec<T, Arch>(T(0));
    }
  };
  clear();
  FMOE_ROUNDS(9)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; ++n) FMOE_PREFETCH_TO_WRITE(c + m * ldc + n * lane);
  }
  column_scales<T, Arch> scales[vectors];  // for 8-bit weights
  const auto lane_of = [&]<extent Lane>(const vec<T, Arch>* x,
                                        extent ahead) FMOE_ALWAYS_INLINE_LAMBDA {
    vec<T, Arch> w[vectors];
    // To widen 8-bit weights takes registers, so that a row waits for the sums of the one before.
    if constexpr (is_panel_int8<S>) b = pointer_after(b, sums[Rows - 1][vectors - 1]);
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; n += 2) {
      const std::byte* const from = b + n / 2 * stride + Lane * row_bytes;
      load_row<T, Arch>(reinterpret_cast<const S*>(from), scales + n, w + n);
      if (Lane * row_bytes % 64 == 0) FMOE_PREFETCH(from + (Stream ? ahead : own_ahead));
    }
    FMOE_ROUNDS(9)
    for (extent m = 0; m < Rows; ++m) {
      FMOE_ROUNDS(8)
      for (extent n = 0; n < vectors; ++n) {
        if constexpr (std::is_same_v<S, int8_quad>)
          sums[m][n] = add_int8_dots_lane<Lane, Arch>(x[m], w[n], sums[m][n]);
        else if constexpr (!is_int16_pair<S>)
          sums[m][n] = fmadd_lane<Lane, T, Arch>(x[m], w[n], sums[m][n]);
        else if (n % 2 == 0)
          add_dots_lane<Lane, Arch>(x[m], w[n], w[n + 1], sums[m][n], sums[m][n + 1]);
      }
    }
  };
  const auto advance = [&](extent k) FMOE_ALWAYS_INLINE_LAMBDA {
    if (Places > 0) FMOE_PREFETCH_FOR_LATER(next);
    if (Places > 1) FMOE_PREFETCH_FOR_LATER(second);
    next += next_step * k;
    second += next_step * k;
    at += k;
    b += row_bytes * k;
  };
  const auto rows = [&](extent count, extent ahead) FMOE_ALWAYS_INLINE_LAMBDA {
    vec<T, Arch> x[Rows];
    for (; count >= lane; count -= lane) {
      FMOE_ROUNDS(9)
      for (extent m = 0; m < Rows; ++m) x[m] = load<T, Arch>(from_a[m] + at);
      lane_of.template operator()<0>(x, ahead);
      lane_of.template operator()<1>(x, ahead);
      if constexpr (lane == 4) {
        lane_of.template operator()<2>(x, ahead);
        lane_of.template operator()<3>(x, ahead);
      }
      advance(lane);
    }
    for (; count > 0; --count) {
      FMOE_ROUNDS(9)
      for (extent m = 0; m < Rows; ++m) x[m] = vec<T, Arch>(from_a[m][at]);
      lane_of.template operator()<0>(x, ahead);
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
    if constexpr (std::is_same_v<S, int8_quad>) {  // the lower halves meet the same panel
      FMOE_ROUNDS(9)
      for (extent m = 0; m < Rows; ++m) {
        FMOE_ROUNDS(8)
        for (extent n = 0; n < vectors; ++n) sums[m][n] = times_256<Arch>(sums[m][n]);
      }
      b = tile.b;
      next = tile.next;
      second = next + tile.depth * next_step;
      steps(count, 0);
    }
    FMOE_ROUNDS(9)
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

}  // namespace fmoe::cpu
