// SPDX-License-Identifier: MIT
#include <fmoe/backend/cpu/kernels/shared_columns.hpp>

#include <atomic>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

// Returns the number of parts, and checks that each column of each product is in one part.
extent parts_of(extent threads, extent rows, extent depth, extent columns, extent products,
                double read = 130e-12) {
  std::vector<std::atomic<int>> seen(products * columns);
  std::atomic<extent> calls{0};
  const auto nobody = [](extent) {};
  cpu::crew crew(threads, nobody);
  cpu::shared_columns<float, arch>({crew, read, 20e-12}, rows, depth, columns, products,
                                   [&](extent product, extent from, extent to) noexcept {
                                     ++calls;
                                     if (from % cpu::panel_width<float, arch> != 0 || to > columns)
                                       seen[0] = -100;
                                     for (extent n = from; n < to && n < columns; ++n)
                                       ++seen[product * columns + n];
                                   });
  for (const auto& n : seen)
    if (n != 1) return ~extent{0};
  return calls;
}

TEST_CASE("every column is in one part, and only work that lasts is cut", "[cpu][shared_columns]") {
  CHECK(parts_of(1, 1, 4096, 4096, 1) == 1);
  CHECK(parts_of(2, 1, 100, 100, 1) == 1);
  CHECK(parts_of(2, 1, 768, 3072, 1) == 8);
  CHECK(parts_of(7, 16, 768, 21490, 1) == 28);
  CHECK(parts_of(2, 1, 768, 1024, 1) == 8);
  CHECK(parts_of(2, 1, 768, 1024, 1, 33e-12) == 4);  // 5 parts would not be as many for each
  CHECK(parts_of(2, 1, 768, 1024, 1, 13e-12) == 2);  // a machine that reads faster
  CHECK(parts_of(2, 12, 768, 1024, 1, 0) == 8);      // the arithmetic of many rows
  for (const extent columns : {extent{1}, extent{31}, extent{33}, extent{1000}, extent{4096}})
    for (const extent products : std::initializer_list<extent>{1, 2, 9})
      for (const extent threads : std::initializer_list<extent>{1, 2, 7}) {
        INFO(columns << " columns, " << products << " products, " << threads << " threads");
        CHECK(parts_of(threads, 5, 3000, columns, products) <= products + 4 * threads);
      }
}

}  // namespace
