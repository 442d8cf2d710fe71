// SPDX-License-Identifier: MIT
// Packs a parameter k n into panels, [n / width][k][width]. This is the order in which gemm reads
// it: one line after the other, two vectors for every k. In panels of bf16 the numbers of the two
// vectors alternate (load_pairs), but not on ARM64. Zeros fill up the last panel.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/backend/cpu/kernels/panel_int8.hpp>
#include <fmoe/backend/cpu/kernels/transpose.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
inline constexpr extent panel_width = 2 * lanes<T, Arch>;

// Returns the position of column n in the row of a panel for one k.
template <class T, class Arch, class S>
constexpr extent place_in_panel(extent n) {
  constexpr extent lane = lanes<T, Arch>;
  return std::is_same_v<S, bf16> && !is_neon<Arch> ? n % lane * 2 + n / lane : n;
}

// Bytes beyond the last panel that prefetches may touch.
inline constexpr extent panel_slack = 16384;

// Returns how many numbers the panels of a product hold.
template <class T, class Arch>
constexpr extent packed_size(extent depth, extent columns) {
  return round_up(columns, panel_width<T, Arch>) * depth;
}

// Elements of one size, whatever they mean.
template <extent Bytes>
using element_bits FMOE_MAY_ALIAS =
    std::conditional_t<Bytes == 2, std::uint16_t,
                       std::conditional_t<Bytes == 4, std::uint32_t, std::uint64_t>>;

// Returns the distance of numbers that all have one, and otherwise nothing.
inline std::optional<extent> step_of(std::span<const extent> offsets) {
  const extent distance = offsets.size() > 1 ? offsets[1] - offsets[0] : 1;
  for (extent i = 1; i < offsets.size(); ++i)
    if (offsets[i] - offsets[i - 1] != distance) return {};
  return distance;
}

// Packing is cut into parts of so many panels and rows. Panels are packed side by side, because a
// panel alone takes one or two lines from each row, and rows are a page apart.
inline constexpr extent panels_of_part = 8, rows_of_part = 256;
template <class T, class Arch>
constexpr extent packing_parts(extent depth, extent columns) {
  return divide_up(columns, panels_of_part * panel_width<T, Arch>) * divide_up(depth, rows_of_part);
}

// Copies up to a row of a panel. Whole rows of Ts, which are lines of the cache, are stored past
// it: a line that is stored there is read from memory first.
template <class T, class Arch, class Element>
void copy_lines(const Element* from, extent count, Element* to) {
  constexpr extent lane = lanes<T, Arch>;
  if constexpr (sizeof(Element) == sizeof(T) && lane * sizeof(T) == 64)
    if (count == panel_width<T, Arch> && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
      for (extent n = 0; n < count; n += lane)
        store_line<T, Arch>(reinterpret_cast<T*>(to) + n,
                            load<T, Arch>(reinterpret_cast<const T*>(from) + n));
      return;
    }
  std::copy_n(from, count, to);
}

// Packs one part of source[k_offsets[k] + n_offsets[n]]; column n of a panel stands at places[n]. A
// block is 16 k of one panel, 2 KB that stay in L1 while whole lines are read, whichever of k and n
// is contiguous.
template <class T, class Arch, extent Bytes>
FMOE_NOINLINE void pack_elements(std::span<const extent> k_offsets,
                                 std::span<const extent> n_offsets,
                                 const element_bits<Bytes>* source,
                                 const std::array<std::uint8_t, panel_width<T, Arch>>& places,
                                 element_bits<Bytes>* out, extent part) {
  constexpr extent width = panel_width<T, Arch>, depth = 64 / sizeof(T),
                   group = panels_of_part * width;
  const extent rows = k_offsets.size(), columns = n_offsets.size(),
               parts = divide_up(rows, rows_of_part), first_row = part % parts * rows_of_part,
               first_column = part / parts * group,
               last_row = std::min(rows, first_row + rows_of_part),
               last_column = std::min(columns, first_column + group);
  // A part looks at no other rows and columns: there are as many parts as these are long.
  const auto k_part = k_offsets.subspan(first_row, last_row - first_row),
             n_part = n_offsets.subspan(first_column, last_column - first_column);
  const auto k_step = step_of(k_part), n_step = step_of(n_part);
  const auto first_step = [](std::span<const extent> at) {
    return at.size() > 1 ? at[1] - at[0] : all;
  };
  const bool k_is_contiguous = first_step(k_part) < first_step(n_part),
             is_wide = Bytes == sizeof(T), copies = is_wide && n_step == 1,
             transposes = is_wide && k_step == 1 && n_step;
  const auto block = [&](extent k0, extent n0) {
    const extent ks = std::min(depth, rows - k0), ns = std::min(width, columns - n0);
    auto* const to = out + n0 * rows + k0 * width;
    if (copies) {
      for (extent k = 0; k < ks; ++k)
        copy_lines<T, Arch>(source + k_offsets[k0 + k] + n_offsets[n0], ns, to + k * width);
    } else if (transposes) {
      if constexpr (Bytes == sizeof(T))
        transpose<T, Arch, false, true>(
            reinterpret_cast<const T*>(source + k_offsets[k0] + n_offsets[n0]), *n_step, ns, ks,
            reinterpret_cast<T*>(to), width);
    } else if (k_is_contiguous) {
      for (extent n = 0; n < ns; ++n)
        for (extent k = 0; k < ks; ++k)
          to[k * width + places[n]] = source[k_offsets[k0 + k] + n_offsets[n0 + n]];
    } else {
      for (extent k = 0; k < ks; ++k)
        for (extent n = 0; n < ns; ++n)
          to[k * width + places[n]] = source[k_offsets[k0 + k] + n_offsets[n0 + n]];
    }
    for (extent k = 0; k < ks; ++k)
      for (extent n = ns; n < width; ++n) to[k * width + places[n]] = 0;
  };
  for (extent k = first_row; k < last_row; k += depth)
    for (extent n = first_column; n < last_column; n += width) block(k, n);
  end_lines<Arch>();
}

// Packs source[k_offsets[k] + n_offsets[n]] for gemm. S is T itself, or a narrower type that gemm
// widens.
template <class T, class Arch, class S>
void pack_panels(std::span<const extent> k_offsets, std::span<const extent> n_offsets,
                 const S* source, S* out, extent part) {
  std::array<std::uint8_t, panel_width<T, Arch>> places;
  for (extent n = 0; n < places.size(); ++n)
    places[n] = static_cast<std::uint8_t>(place_in_panel<T, Arch, S>(n));
  using element = element_bits<sizeof(S)>;
  pack_elements<T, Arch, sizeof(S)>(k_offsets, n_offsets, reinterpret_cast<const element*>(source),
                                    places, reinterpret_cast<element*>(out), part);
}
template <class T, class Arch, class S>
void pack_panels(std::span<const extent> k_offsets, std::span<const extent> n_offsets,
                 const S* source, S* out) {
  for (extent p = 0; p < packing_parts<T, Arch>(k_offsets.size(), n_offsets.size()); ++p)
    pack_panels<T, Arch>(k_offsets, n_offsets, source, out, p);
}

// Packs weights of 8 bits; `first` is the place of the weight from which offsets count. All weights
// of a group of k have one scale in each column.
template <class T, class Arch, class Q>
void pack_quantized(std::span<const extent> k_offsets, std::span<const extent> n_offsets,
                    const quantized_layout& layout, extent first, const std::byte* source,
                    std::byte* out) {
  using element = panel_int8<Q, Arch>;
  using scale = typename element::scale;
  constexpr extent width = panel_width<T, Arch>;
  const auto* const integers = reinterpret_cast<const std::int8_t*>(source);
  const auto* const scales =
      reinterpret_cast<const typename Q::scale*>(source + layout.first_scale());
  for (extent n0 = 0; n0 < n_offsets.size(); n0 += width)
    for (extent k0 = 0; k0 < k_offsets.size(); k0 += element::group) {
      const extent ns = std::min(width, n_offsets.size() - n0),
                   ks = std::min(element::group, k_offsets.size() - k0);
      auto* const of_columns = reinterpret_cast<scale*>(out);
      auto* const rows = reinterpret_cast<std::int8_t*>(out + width * sizeof(scale));
      for (extent n = 0; n < ns; ++n) {
        const extent column = first + n_offsets[n0 + n];
        of_columns[n] =
            convert<scale>(convert<float>(scales[layout.scale_of(column + k_offsets[k0])]));
        for (extent k = 0; k < ks; ++k) {
          const int i = integers[column + k_offsets[k0 + k]];
          rows[k * width + n] = static_cast<std::int8_t>(element::is_biased ? i ^ -128 : i);
        }
      }
      out += width * (sizeof(scale) + ks);
    }
}

// True if no scale is infinite or NaN, which load_scaled cannot widen. Files may hold anything.
template <class Q>
bool has_finite_scales(const quantized_layout& layout, const void* weights) {
  const auto* const first = reinterpret_cast<const typename Q::scale*>(
      static_cast<const std::byte*>(weights) + layout.first_scale());
  return std::all_of(first, first + layout.scales(),
                     [](auto scale) { return std::isfinite(convert<float>(scale)); });
}

}  // namespace fmoe::cpu
