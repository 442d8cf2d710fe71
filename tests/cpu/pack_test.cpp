// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/base/memory.hpp>

#include <numeric>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

TEMPLATE_TEST_CASE("panels hold every element at its place, and zeros", "[cpu][pack]", float,
                   double) {
  using T = TestType;
  const extent width = cpu::panel_width<T, arch>;
  const std::initializer_list<extent> widths{0,     1,         3,         width - 1,
                                             width, width + 1, 8 * width, 9 * width + 5};
  for (const extent depth : std::initializer_list<extent>{0, 1, 2, 15, 16, 17, 70})
    for (const extent columns : widths)
      for (const int layout : {0, 1, 2}) {  // k n; n k; k in pairs around n
        std::vector<T> values(depth * columns + columns * 2);
        std::iota(values.begin(), values.end(), T(1));
        std::vector<extent> k_offsets(depth), n_offsets(columns);
        for (extent k = 0; k < depth; ++k)
          k_offsets[k] = layout == 0 ? k * columns : layout == 1 ? k : k / 2 * 2 * columns + k % 2;
        for (extent n = 0; n < columns; ++n)
          n_offsets[n] = layout == 0 ? n : layout == 1 ? n * depth : 2 * n;
        const extent size = cpu::packed_size<T, arch>(depth, columns);
        REQUIRE(size == (columns + width - 1) / width * width * depth);
        detail::memory block((size + 1) * sizeof(T));  // from a line of the cache on
        T* const out = reinterpret_cast<T*>(block.data());
        std::fill_n(out, size + 1, T(-1));
        cpu::pack_panels<T, arch>(k_offsets, n_offsets, values.data(), out);
        INFO("depth " << depth << " columns " << columns << " layout " << layout);
        for (extent i = 0; i < size; ++i) {
          const extent n = i / (width * depth) * width + i % width, k = i / width % depth;
          REQUIRE(out[i] == (n < columns ? values[k_offsets[k] + n_offsets[n]] : T(0)));
        }
        REQUIRE(out[size] == -1);
      }
}

}  // namespace
