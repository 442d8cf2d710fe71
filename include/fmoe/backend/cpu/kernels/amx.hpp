// SPDX-License-Identifier: MIT
// Intel's AMX: eight registers that are tiles of at most 16 rows of 64 bytes, and products of two
// tiles. Kernels use them in one way: tiles 0 to 3 have the sums of two tiles of rows, 4 and 5, by
// two tiles of columns, 6 and 7.
#pragma once

#include <cstdint>

#include <fmoe/backend/cpu/kernels/simd.hpp>
#include <fmoe/base/platform.hpp>

namespace fmoe::cpu {

inline constexpr extent tile_rows = 16, tile_bytes = 64;

// True if this CPU has tiles of bf16 numbers and of integers of 8 bits, and the system lets the
// program use them.
template <class Arch>
bool has_tiles() {
  if constexpr (is_avx512<Arch>) {
    static const bool has = FMOE_ASSEMBLY && has_cpuid<Arch>(7, 0, 3, 22) &&
                            has_cpuid<Arch>(7, 0, 3, 24) && has_cpuid<Arch>(7, 0, 3, 25) &&
                            detail::may_use_tiles();
    return has;
  } else {
    return false;
  }
}

#if FMOE_X86_64 && FMOE_ASSEMBLY

// Shapes the two tiles of rows, each for 0 to 16 of them, and gives all tiles back at its end: a
// thread that keeps them has 8 KB more to save when the system takes its core away.
class tiles_in_use {
 public:
  tiles_in_use(extent first_rows, extent second_rows) noexcept {
    const auto upper = static_cast<std::uint8_t>(first_rows),
               lower = static_cast<std::uint8_t>(second_rows);
    shapes s{.rows = {upper, upper, lower, lower, upper, lower, tile_rows, tile_rows}};
    for (extent i = 0; i < 8; ++i) s.row_bytes[i] = s.rows[i] == 0 ? 0 : tile_bytes;
    asm volatile("ldtilecfg %0" : : "m"(s));
  }
  ~tiles_in_use() { asm volatile("tilerelease"); }
  tiles_in_use(const tiles_in_use&) = delete;
  tiles_in_use& operator=(const tiles_in_use&) = delete;

 private:
  struct shapes {  // as the instruction reads it
    std::uint8_t palette = 1, first_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(shapes) == 64);
};

// The rows of a tile lie `stride` bytes apart.
template <int Tile>
FMOE_ALWAYS_INLINE void load_tile(const void* p, extent stride) noexcept {
  asm volatile("tileloadd {(%0,%1,1), %%tmm%c2|tmm%c2, [%0+%1]}"
               :
               : "r"(p), "r"(stride), "i"(Tile)
               : "memory");
}
template <int Tile>
FMOE_ALWAYS_INLINE void store_tile(void* p, extent stride) noexcept {
  asm volatile("tilestored {%%tmm%c2, (%0,%1,1)|[%0+%1], tmm%c2}"
               :
               : "r"(p), "r"(stride), "i"(Tile)
               : "memory");
}
template <int Tile>
FMOE_ALWAYS_INLINE void clear_tile() noexcept {
  asm volatile("tilezero {%%tmm%c0|tmm%c0}" : : "i"(Tile));
}

// Adds the products of a tile of rows and one of columns to sums of 32 bits. Those of integers are
// exact, and wrap around. Of bf16 numbers the products of the first ones of all pairs are added up
// from 0, and those of the second ones, each by FMAs; their sum is added to the tile. Subnormal
// numbers count as 0.
template <tile_numbers Of, int Sums, int Rows, int Columns>
FMOE_ALWAYS_INLINE void add_tiles() noexcept {
  if constexpr (Of == tile_numbers::bf16_pairs)
    asm volatile("tdpbf16ps {%%tmm%c2, %%tmm%c1, %%tmm%c0|tmm%c0, tmm%c1, tmm%c2}"
                 :
                 : "i"(Sums), "i"(Rows), "i"(Columns));
  else
    asm volatile("tdpbssd {%%tmm%c2, %%tmm%c1, %%tmm%c0|tmm%c0, tmm%c1, tmm%c2}"
                 :
                 : "i"(Sums), "i"(Rows), "i"(Columns));
}

// Returns 256 times integers of 32 bits plus others, modulo 2^32.
template <class Arch>
vec<float, Arch> joined_halves(const vec<float, Arch>& upper, const vec<float, Arch>& lower) {
  return _mm512_castsi512_ps(_mm512_add_epi32(
      _mm512_maskz_slli_epi32(0xffff, _mm512_castps_si512(upper), 8), _mm512_castps_si512(lower)));
}

#endif

}  // namespace fmoe::cpu
