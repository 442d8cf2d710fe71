// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/transpose.hpp>
#include <fmoe/base/memory.hpp>

#include <cmath>
#include <numeric>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

// Compares with a plain loop; numbers around the matrix stay as they are.
template <class T, bool Sums, bool Lines>
void check(extent rows, extent columns, extent shift, extent pad) {
  INFO(rows << " x " << columns << ", " << shift << " from a line, " << pad << " between rows");
  const extent from_stride = columns + pad, to_stride = rows + pad;
  std::vector<T> from(rows * from_stride + 1);
  std::iota(from.begin(), from.end(), T(1));
  if (rows * columns > 0) from[columns / 2] = T(-0.0);
  detail::memory block((columns * to_stride + shift + 1) * sizeof(T));
  T* const to = reinterpret_cast<T*>(block.data()) + shift;
  std::fill_n(to, columns * to_stride + 1, T(-1));
  cpu::transpose<T, arch, Sums, Lines>(from.data(), from_stride, rows, columns, to, to_stride);
  cpu::end_lines<arch>();
  for (extent j = 0; j < columns; ++j)
    for (extent i = 0; i < to_stride; ++i) {
      const T expected = i < rows ? from[i * from_stride + j] : T(-1);
      REQUIRE(to[j * to_stride + i] == expected);
      if (expected == 0) REQUIRE(std::signbit(to[j * to_stride + i]) == !Sums);
    }
  REQUIRE(to[columns * to_stride] == -1);
}

TEMPLATE_TEST_CASE("a transposed matrix has every number at its place", "[cpu][transpose]", float,
                   double) {
  for (const extent rows : std::initializer_list<extent>{0, 1, 15, 16, 32, 37})
    for (const extent columns : std::initializer_list<extent>{0, 1, 7, 16, 64, 83})
      for (const extent shift : {extent{0}, extent{3}})
        for (const extent pad : {extent{0}, extent{16}, extent{5}}) {
          check<TestType, false, false>(rows, columns, shift, pad);
          check<TestType, false, true>(rows, columns, shift, pad);
          check<TestType, true, true>(rows, columns, shift, pad);
        }
}

}  // namespace
