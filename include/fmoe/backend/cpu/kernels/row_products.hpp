// SPDX-License-Identifier: MIT
// Products of rows with a few rows of a table [n, k]: the sums of gemm, in its order and with its
// bits, for some of its columns.
#pragma once

#include <array>
#include <utility>

#include <fmoe/backend/cpu/kernels/simd.hpp>

namespace fmoe::cpu {

// Returns the lower or the upper half of the merge of a and b. Within lanes of 128 bits, to which
// cheap shuffles are limited, groups of `Group` numbers of a and b alternate. Between lanes (Group
// 0) the merge takes the even or the odd lanes of a, then those of b.
template <class Numbers, extent Group, extent Lane, extent Half, extent... I>
Numbers merged(Numbers a, Numbers b, std::index_sequence<I...>) noexcept {
  constexpr extent n = sizeof...(I);
  constexpr auto from = [](extent i) {
    const extent lane = i / Lane, at = i % Lane;
    if constexpr (Group == 0)
      return i < n / 2 ? (2 * lane + Half) * Lane + at
                       : n + (2 * (lane - n / Lane / 2) + Half) * Lane + at;
    else
      return lane * Lane + Half * Lane / 2 + at / Group / 2 * Group + at % Group +
             at / Group % 2 * n;
  };
  return FMOE_SHUFFLED(a, b, from(I)...);
}

template <class T, class Arch, extent Bit, extent Group>
FMOE_ALWAYS_INLINE void merge_pairs(std::array<vec<T, Arch>, lanes<T, Arch>>& rows) noexcept {
  constexpr extent n = lanes<T, Arch>, lane = 16 / sizeof(T);
  using real = typename vec<T, Arch>::register_type;
  using numbers = vector_of<T, n>;
  constexpr auto all = std::make_index_sequence<n>{};
  FMOE_ROUNDS(16)
  for (extent i = 0; i < n; ++i) {
    if ((i & Bit) != 0) continue;
    const auto a = __builtin_bit_cast(numbers, static_cast<real>(rows[i])),
               b = __builtin_bit_cast(numbers, static_cast<real>(rows[i + Bit]));
    rows[i] = __builtin_bit_cast(real, merged<numbers, Group, lane, 0>(a, b, all));
    rows[i + Bit] = __builtin_bit_cast(real, merged<numbers, Group, lane, 1>(a, b, all));
  }
}

// rows[i][j] becomes rows[j][i]. Each merge exchanges one bit of the position within a row with one
// bit of the row's number.
template <class T, class Arch>
FMOE_ALWAYS_INLINE void transpose(std::array<vec<T, Arch>, lanes<T, Arch>>& rows) noexcept {
  constexpr extent n = lanes<T, Arch>, lane = 16 / sizeof(T);
  merge_pairs<T, Arch, 1, 1>(rows);
  if constexpr (lane == 4) {
    merge_pairs<T, Arch, 2, 2>(rows);
    FMOE_ROUNDS(4)
    for (extent i = 0; i < n; i += 4)
      std::swap(rows[i + 1], rows[i + 2]);  // the two merges exchanged their bits
  }
  if constexpr (n > lane) merge_pairs<T, Arch, lane, 0>(rows);
  if constexpr (n > 2 * lane) merge_pairs<T, Arch, 2 * lane, 0>(rows);
}

// c[r][i] = sum over k of x[r][k] rows[i][k], for as many rows as a vector has lanes. Rows are read
// up to a whole vector beyond `depth`; each block of `block` terms is summed separately.
template <class T, class Arch, class S, extent Rows>
FMOE_NOINLINE void row_products(const T* const (&x)[Rows], const S* const* rows, extent depth,
                                extent block, T* const (&c)[Rows]) noexcept {
  constexpr extent width = lanes<T, Arch>;
  vec<T, Arch> sums[Rows], whole[Rows];
  FMOE_ROUNDS(8)
  for (extent r = 0; r < Rows; ++r) sums[r] = whole[r] = vec<T, Arch>(T(0));
  extent end = std::min(block, depth);
  bool first = true;
  const auto add = [&](extent k, vec<T, Arch> column) FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_ROUNDS(8)
    for (extent r = 0; r < Rows; ++r) sums[r] = fmadd(vec<T, Arch>(x[r][k]), column, sums[r]);
  };
  const auto end_block = [&]() FMOE_ALWAYS_INLINE_LAMBDA {
    FMOE_ROUNDS(8)
    for (extent r = 0; r < Rows; ++r) {
      whole[r] = first ? sums[r] : whole[r] + sums[r];
      sums[r] = vec<T, Arch>(T(0));
    }
    first = false;
    end = std::min(end + block, depth);
  };
  for (extent k0 = 0; k0 < depth; k0 += width) {
    std::array<vec<T, Arch>, width> columns;
    FMOE_ROUNDS(16)
    for (extent i = 0; i < width; ++i) {
      columns[i] = load_as<T, Arch>(rows[i] + k0);
      FMOE_PREFETCH(rows[i] + k0 + 4 * width);
    }
    transpose<T, Arch>(columns);
    if (k0 + width <= end) {  // the columns stay in registers
      FMOE_ROUNDS(16)
      for (extent i = 0; i < width; ++i) add(k0 + i, columns[i]);
      if (k0 + width == end) end_block();
      continue;
    }
    std::array<vec<T, Arch>, width> copy = columns;
    for (extent k = k0; k < std::min(k0 + width, depth); ++k) {
      add(k, copy[k - k0]);
      if (k + 1 == end) end_block();
    }
  }
  FMOE_ROUNDS(8)
  for (extent r = 0; r < Rows; ++r) store<T, Arch>(c[r], whole[r]);
}

}  // namespace fmoe::cpu
