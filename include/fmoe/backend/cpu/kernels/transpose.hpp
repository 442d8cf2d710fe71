// SPDX-License-Identifier: MIT
// Transposes matrices, a square of registers at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include <fmoe/backend/cpu/kernels/simd.hpp>

namespace fmoe::cpu {

// Rows and columns of a square that registers hold.
template <class T, class Arch>
inline constexpr extent square = lanes<T, Arch>;

// to[j][i] = from[i][j] for a square. Each of log2(n) steps interleaves the rows i and i + n / 2,
// which moves the first bit of the number of a column to the end of that of its row, and the other
// way round. With Sums the numbers are those of a sum from 0: -0 becomes 0. With Lines the rows of
// `to` are lines of the cache.
template <class T, class Arch, bool Sums, bool Lines, extent... I>
FMOE_ALWAYS_INLINE void transpose_square(const T* from, extent from_stride, T* to, extent to_stride,
                                         std::index_sequence<I...>) noexcept {
  constexpr extent n = sizeof...(I);
  using row = vector_of<T, n>;
  row a[n], b[n];
  FMOE_ROUNDS(16)
  for (extent i = 0; i < n; ++i) {
    std::memcpy(&a[i], from + i * from_stride, sizeof(row));
    if constexpr (Sums) a[i] = a[i] + row{};
  }
  FMOE_ROUNDS(4)
  for (extent distance = n; distance > 1; distance /= 2) {
    FMOE_ROUNDS(8)
    for (extent i = 0; i < n / 2; ++i) {
      b[2 * i] = FMOE_SHUFFLED(a[i], a[i + n / 2], (I / 2 + I % 2 * n)...);
      b[2 * i + 1] = FMOE_SHUFFLED(a[i], a[i + n / 2], (n / 2 + I / 2 + I % 2 * n)...);
    }
    FMOE_ROUNDS(16)
    for (extent i = 0; i < n; ++i) a[i] = b[i];
  }
  FMOE_ROUNDS(16)
  for (extent i = 0; i < n; ++i) {
    if constexpr (Lines)
      store_line<T, Arch>(to + i * to_stride,
                          vec<T, Arch>::load_aligned(reinterpret_cast<const T*>(&a[i])));
    else std::memcpy(to + i * to_stride, &a[i], sizeof(row));
  }
}

// to[j * to_stride + i] = from[i * from_stride + j] for all i < rows and j < columns. With Lines,
// rows of `to` that are lines of the cache are stored past it, and the caller calls end_lines.
template <class T, class Arch, bool Sums = false, bool Lines = false>
FMOE_NOINLINE void transpose(const T* from, extent from_stride, extent rows, extent columns, T* to,
                             extent to_stride) noexcept {
  constexpr extent n = square<T, Arch>, together = 64;  // columns, whole lines of `from`
  const auto some = [&](extent i0, extent i1, extent j0, extent j1) {
    for (extent j = j0; j < j1; ++j)
      for (extent i = i0; i < i1; ++i)
        to[j * to_stride + i] = Sums ? from[i * from_stride + j] + T(0) : from[i * from_stride + j];
  };
  const extent whole_rows = rows / n * n, whole_columns = columns / n * n;
  const auto all_squares = [&](auto lines) {
    for (extent j0 = 0; j0 < whole_columns; j0 += together)
      for (extent i = 0; i < whole_rows; i += n)
        for (extent j = j0; j < std::min(j0 + together, whole_columns); j += n)
          transpose_square<T, Arch, Sums, lines()>(from + i * from_stride + j, from_stride,
                                                   to + j * to_stride + i, to_stride,
                                                   std::make_index_sequence<n>());
  };
  const bool has_lines =
      reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && to_stride * sizeof(T) % 64 == 0;
  if (Lines && n * sizeof(T) == 64 && has_lines) all_squares(std::true_type());
  else all_squares(std::false_type());
  some(whole_rows, rows, 0, whole_columns);
  some(0, rows, whole_columns, columns);
}

}  // namespace fmoe::cpu
