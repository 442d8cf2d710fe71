// SPDX-License-Identifier: MIT
// What a screen reads of a parameter: its columns as integers, with bounds of the errors.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/gemm.hpp>
#include <fmoe/backend/cpu/kernels/narrow.hpp>
#include <fmoe/backend/cpu/kernels/tile_product.hpp>
#include <fmoe/base/memory.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::cpu {

// True if columns have integers of 8 bits: on ARM64, where a dot product of these takes four times
// as many products as a multiply-add of 16 bits, and with AMX. A row keeps 16 bits.
template <class Arch>
bool has_narrow_columns() {
  if constexpr (is_neon<Arch>) return has_int8_dots<Arch>();
  else return has_tiles<Arch>();
}

// Neighbours along k of a column in 4 bytes of a panel.
template <class Arch>
extent integers_of_step() {
  return has_narrow_columns<Arch>() ? 4 : 2;
}

// The kernels of products of integers that this CPU has. Those of one size read the same panels.
template <class Arch>
const gemm_kernels<float>& dot_kernels() {
  if (const auto* const of_tiles = tile_kernels<tile_numbers::int8_quads, Arch>()) return *of_tiles;
  if constexpr (is_neon<Arch>)
    if (has_narrow_columns<Arch>()) return gemm_kernels_of<float, int8_quad, Arch>;
  return has_fused_dots<Arch>() ? gemm_kernels_of<float, int16_pair<true>, Arch>
                                : gemm_kernels_of<float, int16_pair<false>, Arch>;
}

// The data that screening makes once from a parameter G[k, n].
template <class Arch>
struct screened_weights {
  extent depth, columns, row_stride;
  memory rows;    // n k; each row is padded with zeros to a whole vector
  memory panels;  // of integers
  // By column: a score is (q_x . q_g) scale_x scale_g, and its error is below by_norm |x| +
  // by_rounding |x - x^| + floor.
  vector<float> scales, by_norm, by_rounding;
  static constexpr float floor = 0x1p-125f;

  screened_weights(extent k, extent n)
      : depth(k),
        columns(n),
        row_stride(round_up(k, extent{16})),
        rows(n * row_stride * sizeof(float)),
        panels(panel_bytes(k, n)),
        scales(round_up(n, lanes<float, Arch>)),
        by_norm(scales.size()),
        by_rounding(scales.size()) {}

  // They are filled in parts, which are independent of each other: fill(row, n, count, stride)
  // writes columns n .. n + count of G, each as a row.
  using fill_columns = function_ref<void(float*, extent, extent, extent)>;
  extent parts() const { return divide_up(columns, columns_of_part); }
  void fill(extent part, fill_columns fill) noexcept {
    const extent first = part * columns_of_part, end = std::min(columns, first + columns_of_part);
    fill(row_to_fill(first), first, end - first, row_stride);
    for (extent c = first; c < end; c += panel) narrow_columns(c, std::min(panel, end - c));
  }

  static extent bytes(extent k, extent n) {
    return n * round_up(k, extent{16}) * sizeof(float) + panel_bytes(k, n) +
           3 * round_up(n, lanes<float, Arch>) * sizeof(float);
  }

  const float* row(extent n) const {
    return reinterpret_cast<const float*>(rows.data()) + n * row_stride;
  }

 private:
  static constexpr extent columns_of_part = 64, panel = panel_width<float, Arch>;

  float* row_to_fill(extent n) { return reinterpret_cast<float*>(rows.data()) + n * row_stride; }

  static extent panel_bytes(extent k, extent n) {
    return packed_size<float, Arch>(divide_up(k, integers_of_step<Arch>()), n) * sizeof(float) +
           panel_slack;
  }

  // Makes the panel of these columns: some steps of each of them at a time.
  void narrow_columns(extent first, extent count) noexcept {
    constexpr extent some = 128;
    const extent of_step = integers_of_step<Arch>();
    const auto form = has_narrow_columns<Arch>() ? integer_form::int8 : integer_form::int16;
    narrower<Arch> of[panel];
    for (extent n = 0; n < count; ++n) of[n] = {row(first + n), depth, form};
    alignas(64) float integers[panel * some] = {};
    float* to = reinterpret_cast<float*>(panels.data()) + first * divide_up(depth, of_step);
    for (extent k = 0; k < depth; k += of_step * some) {
      const extent here = std::min(of_step * some, depth - k), steps = divide_up(here, of_step);
      for (extent n = 0; n < count; ++n) of[n].write(k, here, integers + n * some);
      transpose<float, Arch>(integers, some, panel, steps, to, panel);
      to += steps * panel;
    }
    for (extent n = 0; n < count; ++n) bound_column(first + n, of[n].end());
  }

  // Columns that are not usual, and those with a NaN, are always scored in float.
  void bound_column(extent c, const narrowing& g) {
    constexpr double unit = 0x1p-24, up = 1 + 0x1p-20;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const double norm = static_cast<double>(g.norm), lost = static_cast<double>(g.lost),
                 narrowed = norm + lost, steps = static_cast<double>(depth + depth / 128 + 16);
    scales[c] = g.scale;
    by_norm[c] =
        g.is_usual()
            ? static_cast<float>((lost + 2 * steps * unit * norm + 8 * unit * narrowed) * up)
            : infinity;
    by_rounding[c] = g.is_usual() ? static_cast<float>(narrowed * (1 + 8 * unit) * up) : infinity;
  }
};

}  // namespace fmoe::cpu
