// SPDX-License-Identifier: MIT
// Sums of what tokens selected have the bits of plain sums of blocks, as rows and as columns of the
// result, for any parts, and where they add to a result.
#include <fmoe/backend/cpu/kernels/selection_sum.hpp>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

constexpr extent keep = 3, block = 16;

// c (+)= the sum of each expert, of one block after the other.
template <class T>
void plain_sums(const plan::selection_sum_step& s, const auto& kept, const T* b, std::vector<T>& c,
                extent tokens, bool adds) {
  if (!adds) std::ranges::fill(c, T(0));
  for (extent first = 0; first < tokens; first += block)
    for (extent n = 0; n < s.experts; ++n) {
      std::vector<T> values, rows, sum(s.N);
      for (extent t = first; t < std::min(tokens, first + block); ++t)
        for (extent k = 0; k < keep; ++k) {
          if (kept(t, 0).indices[k] != n) continue;
          values.push_back(kept(t, 0).values[k]);
          rows.insert(rows.end(), b + t * s.N, b + (t + 1) * s.N);
        }
      if (values.empty()) continue;
      const plan::nest_axis out{s.N, 0, 1, 1}, summed{values.size(), 1, s.N, 0};
      cpu::nest<T, arch>(values.data(), rows.data(), sum.data(), {&out, 1}, {&summed, 1});
      for (extent i = 0; i < s.N; ++i) c[n * s.expert_stride + i * s.column_stride] += sum[i];
    }
}

template <class T>
void check(extent experts, extent tokens, extent N, bool columns) {
  INFO(experts << " experts, " << tokens << " tokens, " << N << (columns ? " rows" : " columns"));
  plan::selection_sum_step s;
  s.experts = experts;
  s.keep = keep;
  s.N = N;
  s.expert_stride = columns ? 1 : N;
  s.column_stride = columns ? experts : 1;
  s.block = block;
  std::mt19937 engine(7);
  std::vector<std::uint32_t> indices;
  for (extent t = 0; t < tokens; ++t) {  // many experts have no token
    const extent first = engine() % (experts - 2);
    for (const extent n : {first, first + 1, experts - 1})
      indices.push_back(static_cast<std::uint32_t>(n));
  }
  auto values = random<tensor<T, 2>>({tokens + 1, keep}, 1),
       b = random<tensor<T, 2>>({tokens + 1, N}, 2);
  // Their product is rounded to -0, and 0 plus it is 0.
  values(0, 0) = -std::numeric_limits<T>::min();
  b(0, 0) = std::numeric_limits<T>::min();
  const auto held = random<tensor<T, 1>>({experts * N}, 3);
  const auto kept = [&](extent t, extent) {
    return cpu::selected<T>{values.data() + t * keep, indices.data() + t * keep, keep};
  };
  detail::memory scratch(s.scratch(sizeof(T)) * sizeof(T));
  for (const bool adds : {false, true}) {
    std::vector<T> expected(held.data(), held.data() + held.size());
    if (adds) expected[0] = -T(0);  // which stays -0 where nothing is added
    const std::vector<T> before = expected;
    plain_sums<T>(s, kept, b.data(), expected, tokens, adds);
    for (const extent parts : {extent{1}, extent{3}}) {
      tensor<T, 1> made({before.size()});  // begins at a line of the cache
      std::ranges::copy(before, made.data());
      for (extent p = 0; p < parts; ++p)
        cpu::selection_sum<T, arch>(s, kept, {b.data(), N}, made.data(),
                                    reinterpret_cast<T*>(scratch.data()), tokens, p, parts, adds);
      CHECK(std::memcmp(made.data(), expected.data(), made.size() * sizeof(T)) == 0);
    }
  }
  // A part writes nothing of another one, which may run at the same time: any operation would make
  // the NaNs there quiet.
  std::vector<T> made(held.size(), std::numeric_limits<T>::signaling_NaN());
  const std::vector<T> before = made;
  cpu::selection_sum<T, arch>(s, kept, {b.data(), N}, made.data(),
                              reinterpret_cast<T*>(scratch.data()), tokens, 1, 3, false);
  for (extent n = 0; n < experts; ++n) {
    if (n >= experts / 3 && n < experts * 2 / 3) continue;
    for (extent i = 0; i < N; ++i) {
      const extent at = n * s.expert_stride + i * s.column_stride;
      REQUIRE(std::memcmp(&made[at], &before[at], sizeof(T)) == 0);
    }
  }
}

TEMPLATE_TEST_CASE("sums of selections have the bits of plain sums of blocks",
                   "[cpu][selection_sum]", float, double) {
  for (const extent experts : {extent{4}, extent{16}, extent{45}, extent{200}})
    for (const extent tokens : {extent{0}, extent{9}, extent{50}, extent{150}})
      for (const extent N : {extent{1}, extent{20}, extent{48}})
        for (const bool columns : {false, true}) check<TestType>(experts, tokens, N, columns);
}

}  // namespace
