// SPDX-License-Identifier: MIT
// Products with weights of bf16 that round the rows to bf16, too (compile_options::bf16_products).
// Products of two such numbers are exact in float, and a sum takes two neighbours along k at a
// time, the second one first, as the dot product of AVX512_BF16 does. CPUs without it multiply
// floats: rows and panels there have the neighbours exchanged, so that sums have the same order
// and the same bits. So do CPUs whose dot product is slower than products of floats: an Intel
// Emerald Rapids adds 82 thousand million a second, and 147 of floats. CPUs with AMX multiply
// tiles, 20 times as many, and ARM64's with BFMMLA small matrices; sums have another order there
// (tile_product.hpp). Subnormal numbers count as 0, and so does a 0 that follows an odd k.
#pragma once

#include <limits>

#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/tile_product.hpp>
#include <fmoe/backend/cpu/measure.hpp>

namespace fmoe::cpu {

// What rows and panels hold, and how they are multiplied: tiles are tiles of pairs.
enum class bf16_form : std::uint8_t { floats, pairs, tiles };

// The form that this CPU takes. Pairs have the bits of floats, so what is measured may choose
// between them; tiles have other bits, so no measurement decides for them.
template <class Arch>
bf16_form bf16_form_here() {
  static const bf16_form form = [] {
    if constexpr (is_avx512<Arch>)
      if (!has_bf16_dots<Arch>()) return bf16_form::floats;  // nor does it round pairs
    if (tile_kernels<tile_numbers::bf16_pairs, Arch>() != nullptr) return bf16_form::tiles;
    if constexpr (is_avx512<Arch>) {
      const machine_rates& one = this_machine<Arch>().one;
      if (one.bf16_dots > one.flops) return bf16_form::pairs;
    }
    return bf16_form::floats;
  }();
  return form;
}

// Returns the rows of a panel for so many k, which are also the floats of a rounded row.
template <class Arch>
extent bf16_depth(extent k, bf16_form form = bf16_form_here<Arch>()) {
  return form == bf16_form::floats ? round_up(k, 2) : divide_up(k, 2);
}

template <class Arch>
const gemm_kernels<float>& bf16_kernels(bf16_form form = bf16_form_here<Arch>()) {
  if (form == bf16_form::tiles) return *tile_kernels<tile_numbers::bf16_pairs, Arch>();
  if constexpr (is_avx512<Arch>)
    if (form == bf16_form::pairs) return gemm_kernels_of<float, bf16_pair, Arch>;
  return gemm_kernels_of<float, bf16, Arch>;
}

// Rounds rows of k numbers for these kernels, up to whole vectors of them.
template <class Arch>
void round_rows_to_bf16(const float* from, extent stride, extent rows, extent k, float* to,
                        extent to_stride, bf16_form form = bf16_form_here<Arch>()) noexcept {
  constexpr extent lane = lanes<float, Arch>;
  for (extent r = 0; r < rows; ++r, from += stride, to += to_stride) {
    if constexpr (is_avx512<Arch>) {
      if (form != bf16_form::floats) {
        for (extent i = 0; i < k; i += 2 * lane) {
          const extent left = k - i, first = std::min(lane, left),
                       second = std::min(lane, left - first);
          store<float, Arch>(to + i / 2,
                             rounded_pairs<Arch>(load_part<float, Arch>(from + i, first),
                                                 load_part<float, Arch>(from + i + first, second)));
        }
        continue;
      }
    }
    const auto rounded = [&](extent i) {
      const bool is_subnormal = std::abs(from[i]) < std::numeric_limits<float>::min();
      return is_subnormal ? bf16() : bf16(from[i]);
    };
    if (form == bf16_form::floats) {
      if (k % 2 != 0) to[k - 1] = 0;
      for (extent i = 0; i < k; ++i) to[i ^ 1] = convert<float>(rounded(i));
    } else {
      auto* const pairs = reinterpret_cast<bf16*>(to);
      for (extent i = 0; i < k; ++i) pairs[i] = rounded(i);
      if (k % 2 != 0) pairs[k] = bf16();
    }
  }
}

// Packs one panel of source[k_offsets[k] + n_offsets[n]].
template <class Arch>
void pack_bf16_panel(std::span<const extent> k_offsets, std::span<const extent> n_offsets,
                     const bf16* source, extent panel, std::byte* out,
                     bf16_form form = bf16_form_here<Arch>()) {
  constexpr extent width = panel_width<float, Arch>, together = 64;
  const extent depth = k_offsets.size(), columns = n_offsets.size(), first = panel * width;
  auto* const to = reinterpret_cast<bf16*>(out) + first * round_up(depth, 2);
  const auto place = [&](extent k, extent n) {
    return form != bf16_form::floats ? k / 2 * 2 * width + 2 * n + k % 2
                                     : (k ^ 1) * width + place_in_panel<float, Arch, bf16>(n);
  };
  std::fill_n(to, width * round_up(depth, 2), bf16());
  for (extent k0 = 0; k0 < depth; k0 += together)
    for (extent n = 0; n < std::min(width, columns - first); ++n)
      for (extent k = k0; k < std::min(k0 + together, depth); ++k) {
        const bf16 w = source[k_offsets[k] + n_offsets[first + n]];
        const bool is_subnormal = (w.bits & 0x7f80u) == 0;
        to[place(k, n)] = is_subnormal ? bf16() : w;
      }
}

}  // namespace fmoe::cpu
