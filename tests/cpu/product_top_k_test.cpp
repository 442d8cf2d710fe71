// SPDX-License-Identifier: MIT
// Compares the best sums of two lists with a sort of all sums.
#include <fmoe/backend/cpu/kernels/product_top_k.hpp>

#include <random>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

TEMPLATE_TEST_CASE("the best sums, with many ties", "[top_k]", float, double) {
  using T = TestType;
  std::mt19937 bits(1);
  for (const extent n : {extent{1}, extent{3}, extent{64}, extent{65}, extent{200}})
    for (const int levels : {1, 3, 1000})
      for (const extent each : {extent{1}, (n + 1) / 2, n}) {
        std::vector<T> scores(2 * n);
        for (T& x : scores)
          x = static_cast<T>(static_cast<int>(bits() % static_cast<unsigned>(levels)) - levels / 3);
        const auto best = [&](const T* row) {
          std::vector<extent> order(n);
          for (extent i = 0; i < n; ++i) order[i] = i;
          std::ranges::stable_sort(order, [&](extent a, extent b) { return row[a] > row[b]; });
          order.resize(each);
          std::ranges::sort(order);
          return order;
        };
        std::vector<std::pair<T, extent>> sums;
        for (const extent i : best(scores.data()))
          for (const extent j : best(scores.data() + n))
            sums.emplace_back(-(scores[i] + scores[n + j]), i * n + j);
        std::ranges::sort(sums);
        for (const extent keep : {extent{0}, extent{1}, each, std::min<extent>(each * each, 150)}) {
          INFO(n << " levels " << levels << " each " << each << " keep " << keep);
          std::vector<std::pair<extent, T>> expected;
          for (extent k = 0; k < keep; ++k)
            if (sums[k].first != 0) expected.emplace_back(sums[k].second, -sums[k].first);
          std::ranges::sort(expected);

          const extent guard = 8, lists = cpu::top_k_state_size<T, arch>(each),
                       size = cpu::top_k_state_size<T, arch>(keep);
          std::vector<T> state(size + guard, T(77)), first(lists + guard, T(77)),
              second(lists + guard, T(77));
          cpu::product_top_k<T, arch>(
              {state.data(), keep},
              {selection_rule::kind::product_top_k, keep, 0, weighting::score, 0, each},
              scores.data(), n, {first.data(), each}, {second.data(), each});
          const auto found = cpu::top_k_result<T, arch>(state.data(), keep);
          std::vector<std::pair<extent, T>> got;
          for (extent k = 0; k < found.count; ++k)
            got.emplace_back(found.indices[k], found.values[k]);
          CHECK(got == expected);
          for (const auto* v : {&state, &first, &second})
            CHECK(std::all_of(v->end() - guard, v->end(), [](T x) { return x == T(77); }));
        }
      }
}

}  // namespace
