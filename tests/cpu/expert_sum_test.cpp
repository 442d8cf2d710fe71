// SPDX-License-Identifier: MIT
// Sums by experts have the bits of plain loops over blocks of tokens, for any parts, any number of
// blocks at a time, and where they add to a result.
#include <fmoe/backend/cpu/kernels/expert_sum.hpp>

#include <cstdint>
#include <vector>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;
using plan::nest_axis;

constexpr extent experts = 5, keep = 2, block = 16;

// Each token keeps `keep` experts; expert 3 has no token, and expert 4 none before token 40.
template <class T>
struct choices {
  explicit choices(extent tokens) : indices(tokens * keep), values(tokens * keep, T(1)) {
    for (extent t = 0; t < tokens; ++t) {
      indices[t * keep] = static_cast<std::uint32_t>(t % 3);
      indices[t * keep + 1] = static_cast<std::uint32_t>(t < 40 ? (t + 1) % 3 : 4);
      if (indices[t * keep] > indices[t * keep + 1])
        std::swap(indices[t * keep], indices[t * keep + 1]);
    }
  }
  cpu::selected<T> operator()(extent t) const {
    return {values.data() + t * keep, indices.data() + t * keep, keep};
  }

  std::vector<std::uint32_t> indices;
  std::vector<T> values;
};

// a has a row for each place and b one for each token: c[n, i, o] is the sum of a[t, place, i] b[t,
// o].
template <class T>
void check(extent tokens, extent rows, extent columns, extent blocks) {
  INFO(tokens << " tokens, " << rows << " x " << columns << ", " << blocks << " blocks at a time");
  plan::expert_sum_step s;
  s.a = {{}, true, rows};
  s.b = {{}, false, columns};
  s.b.at.storage = 0;
  s.out = {{rows, 1, 0, columns}, {columns, 0, 1, 1}};
  s.experts = experts;
  s.keep = keep;
  s.expert_stride = rows * columns;
  s.block = block;
  s.together = blocks * block;
  const choices<T> chosen(tokens);
  const auto x = random<tensor<T, 2>>({tokens + 1, keep * rows}, 1),
             y = random<tensor<T, 2>>({tokens + 1, columns}, 2);
  const auto held = random<tensor<T, 1>>({experts * rows * columns}, 3);
  detail::memory scratch(s.scratch(sizeof(T)) * sizeof(T));
  for (const bool adds : {false, true}) {
    std::vector<T> expected(held.data(), held.data() + held.size());
    if (!adds) std::ranges::fill(expected, T(0));
    for (extent first = 0; first < tokens; first += block)
      for (extent n = 0; n < experts; ++n) {
        std::vector<T> of_a, of_b;  // the rows of the expert in this block
        for (extent t = first; t < std::min(tokens, first + block); ++t)
          for (extent k = 0; k < keep; ++k) {
            if (chosen(t).indices[k] != n) continue;
            const T *const row_a = x.data() + (t * keep + k) * rows, *const row_b =
                                                                         y.data() + t * columns;
            of_a.insert(of_a.end(), row_a, row_a + rows);
            of_b.insert(of_b.end(), row_b, row_b + columns);
          }
        if (of_a.empty()) continue;
        const nest_axis summed{of_a.size() / rows, rows, columns, 0};
        cpu::nest<T, arch>(of_a.data(), of_b.data(), expected.data() + n * rows * columns, s.out,
                           {&summed, 1}, cpu::sum_into::total);
      }
    for (const extent parts : {extent{1}, extent{3}}) {
      std::vector<T> made(held.data(), held.data() + held.size());
      for (extent p = 0; p < parts; ++p)
        cpu::expert_sum<T, arch>(s, chosen, {x.data(), keep * rows}, {y.data(), columns},
                                 made.data(), reinterpret_cast<T*>(scratch.data()), tokens, p,
                                 parts, adds);
      CHECK((made == expected));
    }
  }
}

TEMPLATE_TEST_CASE("sums by experts have the bits of plain sums of blocks", "[cpu][expert_sum]",
                   float, double) {
  for (const extent blocks : {extent{1}, extent{2}, extent{4}})
    for (const extent tokens : {extent{0}, extent{7}, extent{16}, extent{63}, extent{100}}) {
      check<TestType>(tokens, 6, 20, blocks);
      check<TestType>(tokens, 13, 300, blocks);  // parts of it are in L1 in turns
      check<TestType>(tokens, 40, 500, blocks);  // by the kernels of gemm
    }
}

}  // namespace
