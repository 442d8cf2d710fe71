// SPDX-License-Identifier: MIT
// Products of blocks of few terms have the bits of gemm, for any number of rows and columns, and
// where they add to a result.
#include <fmoe/backend/cpu/kernels/block_sums.hpp>

#include <cstring>
#include <numeric>
#include <vector>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

template <class T>
void check(extent rows, extent columns, const std::vector<extent>& counts) {
  INFO(rows << " x " << columns << ", " << counts.size() << " blocks");
  const extent depth = std::accumulate(counts.begin(), counts.end(), extent{0}), lda = depth + 3,
               ldc = columns + 5, width = cpu::panel_width<T, arch>;
  const auto a = random<tensor<T, 2>>({rows, lda}, 1);
  const auto panels = random<tensor<T, 2>>({depth + 1, round_up(columns, width)}, 2);
  const auto held = random<tensor<T, 2>>({rows, ldc}, 3);
  for (const bool adds : {false, true}) {
    std::vector<T> expected(held.data(), held.data() + held.size()), made = expected;
    cpu::gemm_args<T> args{
        rows,
        columns,
        depth,
        a.data(),
        lda,
        {reinterpret_cast<const std::byte*>(panels.data()), &cpu::gemm_kernels_of<T, T, arch>},
        depth,
        expected.data(),
        ldc,
        adds,
        depth,
        nullptr};
    args.counts = counts.data();
    cpu::gemm<T, arch>(args, [](auto...) {});
    args.c = made.data();
    cpu::block_sums<T, arch>(args);
    CHECK(std::memcmp(made.data(), expected.data(), made.size() * sizeof(T)) == 0);
  }
}

TEMPLATE_TEST_CASE("sums of short blocks have the bits of gemm", "[cpu][block_sums]", float,
                   double) {
  for (const auto& counts : {std::vector<extent>{5}, {1, 9}, {12, 3, 7, 10}, {90, 110}})
    for (extent rows = 1; rows <= 30; ++rows)
      for (const extent columns : {extent{20}, extent{64}, extent{300}})
        check<TestType>(rows, columns, counts);
}

}  // namespace
