// SPDX-License-Identifier: MIT
// Products with weights of q8 that round the rows to 8 bits, too
// (compile_options::int8_products). As many neighbours along k as share a scale of q8 are a group:
// its numbers become integers times a scale, the greatest magnitude over 127, as in ggml's Q8_0.
// The products of integers of a group add up exactly; their sum times both scales is added to the
// result, one group after the other. CPUs with VNNI, or with SDOT on ARM64, add four products of
// bytes in one instruction, and those with SMMLA eight. Others multiply integers as floats, whose
// sum is below 2^24 and exact, too. So all CPUs that add and multiply in one operation have the
// same bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/tile_product_neon.hpp>

namespace fmoe::cpu {

// How kernels read integers: as quads, four neighbours along k in the place of a float, or each by
// itself, which is a float in a rounded row. On x86-64 the instruction takes the weights' bytes
// without a sign: weight i of a quad stands there as i + 128, and each sum starts with -128 times
// the sum of its row's integers.
template <class Arch, bool Quads>
struct int8_codes {
  static constexpr bool is_biased = Quads && !is_neon<Arch>;
  static constexpr extent together = Quads ? 4 : 1, steps = q8::block / together;
  // A group of a rounded row: so many floats with its integers, then the scale and the start.
  static constexpr extent scale = steps, start = steps + 1, floats = steps + 2;
};

// How kernels add the products of a group: floats one by one, quads, or matrices of two quads by
// two rows (tile_product_neon.hpp).
enum class int8_step : std::uint8_t { floats, quads, matrices };

template <class Arch>
int8_step int8_step_here() {
  if (has_matrices<tile_numbers::int8_quads, Arch>()) return int8_step::matrices;
  return has_int8_dots<Arch>() ? int8_step::quads : int8_step::floats;
}

// Rounds a group. One with a number that is infinite or NaN has the scale NaN, and one whose scale
// would be subnormal is 0.
template <class Codes>
void round_group(const float* from, float* to) noexcept {
  std::uint32_t largest = 0;
  for (extent i = 0; i < q8::block; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffu);
  const auto most = std::bit_cast<float>(largest);
  const bool is_usual = most >= 127 * std::numeric_limits<float>::min() && std::isfinite(most);
  const float inverse = is_usual ? 127 / most : 0;
  std::int8_t codes[q8::block];
  int sum = 0;
  for (extent i = 0; i < q8::block; ++i)
    codes[i] = static_cast<std::int8_t>(std::nearbyint(is_usual ? from[i] * inverse : 0));
  for (const std::int8_t code : codes) sum += code;
  if constexpr (Codes::together == 4) std::memcpy(to, codes, sizeof codes);
  else std::copy_n(codes, q8::block, to);
  to[Codes::scale] = is_usual              ? most / 127
                     : std::isfinite(most) ? 0
                                           : std::numeric_limits<float>::quiet_NaN();
  to[Codes::start] = std::bit_cast<float>(Codes::is_biased ? -128 * sum : 0);
}

// Rounds rows of k numbers for these kernels; the last group of a row is filled up with zeros.
template <class Arch>
void round_rows_to_int8(const float* from, extent stride, extent rows, extent k, float* to,
                        extent to_stride, int8_step by = int8_step_here<Arch>()) noexcept {
  const auto round = [&]<class Codes>(Codes) {
    for (extent r = 0; r < rows; ++r)
      for (extent g = 0; g * q8::block < k; ++g) {
        const float* const group = from + r * stride + g * q8::block;
        float* const rounded = to + r * to_stride + g * Codes::floats;
        const extent count = std::min(q8::block, k - g * q8::block);
        if (count == q8::block) {
          round_group<Codes>(group, rounded);
        } else {
          float filled[q8::block] = {};
          std::copy_n(group, count, filled);
          round_group<Codes>(filled, rounded);
        }
      }
  };
  if (by == int8_step::floats) round(int8_codes<Arch, false>());
  else round(int8_codes<Arch, true>());
}

// The bytes of the scales and of the integers of a group of a panel.
template <class Arch>
inline constexpr extent int8_scale_bytes =
    panel_width<float, Arch> * sizeof(typename panel_int8<q8, Arch>::scale);
template <class Arch>
inline constexpr extent int8_code_bytes = panel_width<float, Arch> * q8::block;

// One register tile (gemm.hpp). `depth` counts groups; c holds the sums, so that it makes no
// difference where along k a tile begins. Tiles fetch the data for later from two places, even if
// that is more than their part.
template <class Arch, int8_step Step, extent Rows, extent Panels, bool Stream>
FMOE_NOINLINE void int8_kernel(const gemm_tile<float>& tile) noexcept {
  constexpr bool has_quads = Step != int8_step::floats;
  using codes = int8_codes<Arch, has_quads>;
  using scale = typename panel_int8<q8, Arch>::scale;
  constexpr extent lane = lanes<float, Arch>,
                   group_bytes = int8_scale_bytes<Arch> + int8_code_bytes<Arch>,
                   row_bytes = panel_width<float, Arch> * codes::together, vectors = 2 * Panels;
  const std::byte* __restrict b = tile.b;
  const std::byte *next = tile.next, *second = next + tile.depth * tile.next_step;
  // Every third row has a pointer, as in gemm_kernel.
  constexpr extent apart = 3;
  const extent lda = tile.lda;
  const float* from_a[divide_up(Rows, apart)];
  FMOE_ROUNDS(2)
  for (extent m = 0; m < Rows; m += apart) {
    from_a[m / apart] = tile.a + m * lda;
    FMOE_KEEP_POINTER(from_a[m / apart]);
  }
  const auto place_in_row = [&](extent m, extent at) FMOE_ALWAYS_INLINE_LAMBDA {
    return from_a[m / apart] + m % apart * lda + at;
  };
  const auto of_row = [&](extent m, extent at) FMOE_ALWAYS_INLINE_LAMBDA {
    return vec<float, Arch>(*place_in_row(m, at));
  };
  vec<float, Arch> sums[Rows][vectors];
  FMOE_ROUNDS(6)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; ++n)
      sums[m][n] = tile.accumulate ? load<float, Arch>(tile.c + m * tile.ldc + n * lane)
                                   : vec<float, Arch>(0.f);
  }
  // As in gemm_kernel, a stream fetches 4 or 8 KB ahead, near its end from the panels after it.
  constexpr extent ahead = (Rows <= 2 ? 4096 : 8192) / Panels, near_end = ahead / group_bytes;
  const extent after_end = ahead + Panels * tile.panel_bytes - tile.depth * group_bytes;
  for (extent left = tile.depth; left > 0; --left) {
    const extent fetched = !Stream ? tile.own_ahead : left > near_end ? ahead : after_end;
    FMOE_ROUNDS(4)
    for (extent p = 0; p < Panels; ++p) {
      const std::byte* from = b + p * tile.panel_bytes;
      for (extent at = 0; at < group_bytes; at += 64) FMOE_PREFETCH(from + fetched + at);
      vec<float, Arch> factors[2], integers[Rows][2];
      load_two<float, Arch>(reinterpret_cast<const scale*>(from), factors[0], factors[1]);
      from += int8_scale_bytes<Arch>;
#if defined(__aarch64__)
      if constexpr (Step == int8_step::matrices) {
        multiply_group<Arch, Rows>(place_in_row, codes::steps, from, integers);
      } else
#endif
      {
        FMOE_ROUNDS(6)
        for (extent m = 0; m < Rows; ++m) integers[m][0] = integers[m][1] = of_row(m, codes::start);
        FMOE_ROUNDS(8)
        for (extent j = 0; j < codes::steps; ++j, from += row_bytes) {
          vec<float, Arch> w[2];
          using element = std::conditional_t<has_quads, float, std::int8_t>;
          load_two<float, Arch>(reinterpret_cast<const element*>(from), w[0], w[1]);
          FMOE_ROUNDS(6)
          for (extent m = 0; m < Rows; ++m) {
            const vec<float, Arch> x = of_row(m, j);
            for (extent n = 0; n < 2; ++n)
              if constexpr (has_quads)
                integers[m][n] = add_int8_dots<Arch>(x, w[n], integers[m][n]);
              else integers[m][n] = fmadd(x, w[n], integers[m][n]);
          }
        }
      }
      FMOE_ROUNDS(6)
      for (extent m = 0; m < Rows; ++m) {
        const vec<float, Arch> x = of_row(m, codes::scale);
        for (extent n = 0; n < 2; ++n) {
          vec<float, Arch>& sum = sums[m][2 * p + n];
          if constexpr (has_quads) integers[m][n] = numbers_of<Arch>(integers[m][n]);
          sum = fmadd(integers[m][n], x * factors[n], sum);
        }
      }
    }
    if constexpr (!Stream)
      for (extent at = 0; at < tile.next_step; at += 64) {
        FMOE_PREFETCH_FOR_LATER(next + at);
        FMOE_PREFETCH_FOR_LATER(second + at);
      }
    next += tile.next_step;
    second += tile.next_step;
    FMOE_ROUNDS(2)
    for (const float*& of_rows : from_a) of_rows += codes::floats;
    b += group_bytes;
  }
  FMOE_ROUNDS(6)
  for (extent m = 0; m < Rows; ++m) {
    FMOE_ROUNDS(8)
    for (extent n = 0; n < vectors; ++n)
      store<float, Arch>(tile.c + m * tile.ldc + n * lane, sums[m][n]);
  }
}

// Sums and integers of six rows take 24 of the 32 registers of AVX-512.
inline constexpr extent int8_most = 6;

template <class Arch, int8_step Step>
inline constexpr auto int8_tiles = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<float>, sizeof...(I)>{
      &int8_kernel<Arch, Step, I + lone_rows, 1, false>...};
}(std::make_index_sequence<int8_most - lone_rows + 1>{});

template <class Arch, int8_step Step, extent Panels>
inline constexpr auto int8_streams = []<extent... I>(std::index_sequence<I...>) {
  return std::array<gemm_kernel_pointer<float>, sizeof...(I)>{
      &int8_kernel<Arch, Step, I + 1, std::min(Panels, streamed_panels<Arch>(I + 1)), true>...};
}(std::make_index_sequence<streamed_rows>{});

template <class Arch, int8_step Step>
inline constexpr gemm_kernels<float> int8_kernels_of{
    int8_code_bytes<Arch>,
    1,
    int8_scale_bytes<Arch>,
    int8_most,
    {int8_tiles<Arch, Step>.data(), int8_tiles<Arch, Step>.data()},
    {int8_streams<Arch, Step, 1>.data(), int8_streams<Arch, Step, 2>.data(),
     int8_streams<Arch, Step, 4>.data()},
    all,
    nullptr,
    nullptr};

template <class Arch>
const gemm_kernels<float>& int8_product_kernels(int8_step by = int8_step_here<Arch>()) {
  if constexpr (is_neon<Arch>)
    if (by == int8_step::matrices) return int8_kernels_of<Arch, int8_step::matrices>;
  if constexpr (!is_sse<Arch>)  // whose CPUs have no instruction for them
    if (by == int8_step::quads) return int8_kernels_of<Arch, int8_step::quads>;
  return int8_kernels_of<Arch, int8_step::floats>;
}

// Packs one panel of q8; `first` is the place of the weight from which offsets count. All weights
// of a group have one scale in each column.
template <class Arch>
void pack_int8_panel(std::span<const extent> k_offsets, std::span<const extent> n_offsets,
                     const quantized_layout& layout, extent first, const std::byte* source,
                     extent panel, std::byte* out, int8_step by = int8_step_here<Arch>()) {
  using scale = typename panel_int8<q8, Arch>::scale;
  constexpr extent width = panel_width<float, Arch>;
  const bool in_quads = by != int8_step::floats;
  const extent together = in_quads ? 4 : 1, depth = k_offsets.size(), n0 = panel * width,
               columns = std::min(width, n_offsets.size() - n0);
  const int bias = in_quads && int8_codes<Arch, true>::is_biased ? -128 : 0;
  const auto* const integers = reinterpret_cast<const std::int8_t*>(source);
  const auto* const scales = reinterpret_cast<const q8::scale*>(source + layout.first_scale());
  std::byte* to = out + panel * int8_product_kernels<Arch>().bytes(divide_up(depth, q8::block));
  for (extent k0 = 0; k0 < depth; k0 += q8::block) {
    auto* const of_columns = reinterpret_cast<scale*>(to);
    auto* const codes = reinterpret_cast<std::int8_t*>(to + int8_scale_bytes<Arch>);
    std::fill_n(of_columns, width, scale());
    std::fill_n(codes, int8_code_bytes<Arch>, static_cast<std::int8_t>(bias));
    for (extent n = 0; n < columns; ++n) {
      const extent column = first + n_offsets[n0 + n];
      of_columns[n] =
          convert<scale>(convert<float>(scales[layout.scale_of(column + k_offsets[k0])]));
      for (extent k = 0; k < std::min(q8::block, depth - k0); ++k) {
        const int code = integers[column + k_offsets[k0 + k]];
        codes[(k / together * width + n) * together + k % together] =
            static_cast<std::int8_t>(code ^ bias);
      }
    }
    to += int8_scale_bytes<Arch> + int8_code_bytes<Arch>;
  }
}

}  // namespace fmoe::cpu
