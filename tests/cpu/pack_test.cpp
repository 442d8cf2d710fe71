// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/pack.hpp>
#include <fmoe/base/memory.hpp>

#include <numeric>
#include <span>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#include <unistd.h>
#endif

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
  for (const extent depth : std::initializer_list<extent>{0, 1, 2, 15, 16, 17, 70, 256, 300})
    for (const extent columns : widths)
      for (const int layout : {0, 1, 2, 3}) {  // k n; n k; k in pairs around n; k n with a gap
        std::vector<T> values(depth * columns + columns * 2 + 7);
        std::iota(values.begin(), values.end(), T(1));
        std::vector<extent> k_offsets(depth), n_offsets(columns);
        for (extent k = 0; k < depth; ++k)
          k_offsets[k] = layout == 0   ? k * columns
                         : layout == 1 ? k
                         : layout == 2 ? k / 2 * 2 * columns + k % 2
                                       : k * columns + (k < cpu::rows_of_part ? 0 : 7);
        for (extent n = 0; n < columns; ++n)
          n_offsets[n] = layout == 1 ? n * depth : layout == 2 ? 2 * n : n;
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

#if __has_include(<sys/mman.h>)
// Three pages of offsets, of which only the middle one can be read.
class page_of_offsets {
 public:
  page_of_offsets()
      : bytes_(static_cast<extent>(::sysconf(_SC_PAGESIZE))),
        all_(::mmap(nullptr, 3 * bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(all_ != MAP_FAILED);
    REQUIRE(::mprotect(middle().data(), bytes_, PROT_READ | PROT_WRITE) == 0);
  }
  page_of_offsets(const page_of_offsets&) = delete;
  ~page_of_offsets() { ::munmap(all_, 3 * bytes_); }

  std::span<extent> all() const { return {static_cast<extent*>(all_), 3 * count()}; }
  std::span<extent> middle() const { return all().subspan(count(), count()); }
  extent count() const { return bytes_ / sizeof(extent); }  // of a page

 private:
  extent bytes_;
  void* all_;
};

// If each part looked at all of them, a column would take time like the square of its length.
TEST_CASE("a part of the packing looks at no other rows and columns", "[cpu][pack]") {
  const page_of_offsets k_offsets, n_offsets;
  const extent count = k_offsets.count(), width = cpu::panel_width<float, arch>,
               columns = cpu::panels_of_part * width, row_parts = 3 * count / cpu::rows_of_part;
  std::vector<float> values(count * count);
  std::iota(values.begin(), values.end(), 1.f);
  std::vector<float> out(cpu::packed_size<float, arch>(3 * count, 3 * count));
  for (const bool is_transposed : {false, true}) {
    for (extent i = 0; i < count; ++i) {
      k_offsets.middle()[i] = is_transposed ? i : i * count;
      n_offsets.middle()[i] = is_transposed ? i * count : i;
    }
    for (extent n = count; n < 2 * count; n += columns)
      for (extent k = count; k < 2 * count; k += cpu::rows_of_part)
        cpu::pack_panels<float, arch>(k_offsets.all(), n_offsets.all(), values.data(), out.data(),
                                      n / columns * row_parts + k / cpu::rows_of_part);
    extent wrong = 0;
    for (extent n = 0; n < count; ++n)
      for (extent k = 0; k < count; ++k) {
        const float packed = out[(count + n) / width * width * 3 * count + (count + k) * width +
                                 (count + n) % width];
        wrong += packed != values[is_transposed ? n * count + k : k * count + n];
      }
    CHECK(wrong == 0);
  }
}
#endif

}  // namespace
