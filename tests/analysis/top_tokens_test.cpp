// SPDX-License-Identifier: MIT
// Compares the kept tokens with a full sort of each column.
#include <fmoe/analysis/top_tokens.hpp>

#include <limits>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using entries = std::vector<top_tokens::entry>;

const double nan = std::numeric_limits<double>::quiet_NaN();

// The values have many ties and zeros, and some are negative.
template <class T>
tensor<T, 2> values(extent tokens, extent experts) {
  auto v = random<tensor<T, 2>>({tokens, experts}, 1);
  for (extent i = 0; i < v.size(); ++i)
    v.data()[i] = convert<T>(std::round(2 * convert<float>(v.data()[i])) / 4);
  return v;
}

template <class T>
entries sorted(const tensor<T, 2>& v, extent n, extent k, extent first_token) {
  entries all;
  for (extent t = 0; t < v.shape()[0]; ++t)
    if (convert<double>(v(t, n)) != 0) all.push_back({first_token + t, convert<double>(v(t, n))});
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return a.value > b.value; });
  all.resize(std::min(all.size(), k));
  return all;
}

template <class T>
tensor<T, 2> rows(const tensor<T, 2>& v, extent first, extent count) {
  return tensor<T, 2>({count, v.shape()[1]},
                      std::span<const T>(v.data() + first * v.shape()[1], count * v.shape()[1]));
}

TEMPLATE_TEST_CASE("the k best tokens of each expert, the earlier first of equal ones",
                   "[top_tokens]", float, double, bf16) {
  const auto v = values<TestType>(50, 9);
  for (const extent k : {extent{0}, extent{1}, extent{5}, extent{50}, extent{80}}) {
    top_tokens top(9, k);
    top.add(v, 1000);
    for (extent n = 0; n < 9; ++n) CHECK(top.of(n) == sorted(v, n, k, 1000));
  }
}

TEST_CASE("any number of threads, any cut and any order of the batches: the same tokens",
          "[top_tokens]") {
  const auto v = values<float>(96, 700);
  for (const int threads : {1, 2, 7})
    for (const extent step : {extent{1}, extent{8}, extent{96}})
      for (const bool backwards : {false, true})
        on_threads(threads, [&] {
          INFO(threads << " threads, batches of " << step << (backwards ? ", the last first" : ""));
          top_tokens top(700, 6);
          for (extent b = 0; b < 96 / step; ++b) {
            const extent first = backwards ? 96 - (b + 1) * step : b * step;
            top.add(rows(v, first, step), first);
          }
          bool same = true;
          for (extent n = 0; n < 700; ++n) same = same && top.of(n) == sorted(v, n, 6, 0);
          CHECK(same);
        });
}

TEST_CASE("zeros are never kept, negative values come last, NaN first", "[top_tokens]") {
  top_tokens top(2, 3);
  top.add(tensor<double, 2>({4, 2}, {0, 1, -1, nan, -0.0, 3, -2, nan}), 0);
  CHECK(top.of(0) == entries{{1, -1}, {3, -2}});
  const auto second = top.of(1);
  REQUIRE(second.size() == 3);
  CHECK(second[0].token == 1);
  CHECK(std::isnan(second[0].value));
  CHECK(second[1].token == 3);
  CHECK(std::isnan(second[1].value));
  CHECK(second[2] == top_tokens::entry{2, 3});
  top.add(tensor<double, 2>({1, 2}, {0, 4}), 4);
  CHECK(top.of(1)[2] == top_tokens::entry{4, 4});

  top_tokens first_of_equals(1, 2);
  first_of_equals.add(tensor<double, 2>({2, 1}, {nan, nan}), 3);
  first_of_equals.add(tensor<double, 2>({3, 1}, {nan, nan, nan}), 0);
  CHECK(first_of_equals.of(0)[0].token == 0);
  CHECK(first_of_equals.of(0)[1].token == 1);
}

TEST_CASE("misuse of a list of tokens", "[top_tokens]") {
  top_tokens top(3, 2);
  CHECK(top.of(2).empty());
  CHECK_THROWS_AS(top.of(3), value_error);
  CHECK_THROWS_AS(top.add(tensor<float, 2>({4, 2}), 0), shape_error);
  CHECK_THROWS_AS(top_tokens(2, std::numeric_limits<extent>::max() / 8), shape_error);
  CHECK_NOTHROW(top_tokens(0, 2).add(tensor<float, 2>({4, 0}), 0));
}

}  // namespace
