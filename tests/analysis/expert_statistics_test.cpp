// SPDX-License-Identifier: MIT
// Compares statistics of a stream with double loops, and their bits for any split of the stream.
#include <fmoe/analysis/expert_statistics.hpp>

#include <cstdint>
#include <cstring>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr double infinity = std::numeric_limits<double>::infinity();

// A third of the coefficients are 0, and expert 3 never fires.
template <class T>
tensor<T, 2> coefficients(extent tokens, extent experts) {
  auto a = random<tensor<T, 2>>({tokens, experts}, 1);
  for (extent i = 0; i < a.size(); ++i)
    if (i % 3 == 0 || i % experts == 3) a.data()[i] = convert<T>(0.f);
  return a;
}

template <class T>
tensor<T, 2> rows(const tensor<T, 2>& a, extent first, extent count) {
  return tensor<T, 2>({count, a.shape()[1]},
                      std::span<const T>(a.data() + first * a.shape()[1], count * a.shape()[1]));
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}
bool same_bits(const expert_statistics& a, const expert_statistics& b) {
  return a.tokens() == b.tokens() && a.counts() == b.counts() &&
         same_bits(a.mean_coefficients(), b.mean_coefficients()) &&
         same_bits(a.largest(), b.largest());
}

template <class T>
void check(const expert_statistics& s, const tensor<T, 2>& a, const std::vector<bool>& members) {
  for (extent n = 0; n < a.shape()[1]; ++n) {
    extent tokens = 0, count = 0;
    double sum = 0, largest = -infinity;
    for (extent t = 0; t < a.shape()[0]; ++t) {
      if (!members[t]) continue;
      const double value = convert<double>(a(t, n));
      ++tokens;
      if (value != 0) ++count;
      sum += value;
      largest = std::max(largest, value);
    }
    const double part = static_cast<double>(count) / static_cast<double>(tokens);
    CHECK(s.tokens() == tokens);
    CHECK(s.counts()[n] == count);
    CHECK(s.frequency()[n] == part);
    CHECK(s.log10_frequency()[n] == (count == 0 ? -infinity : std::log10(part)));
    CHECK(s.mean_coefficients()[n] == sum / static_cast<double>(tokens));
    CHECK(s.largest()[n] == largest);
  }
}

TEMPLATE_TEST_CASE("statistics of all tokens and of a subpopulation", "[expert_statistics]", float,
                   double, bf16) {
  const auto a = coefficients<TestType>(30, 7);
  std::vector<bool> all(30, true), some(30);
  for (const extent t : std::array<extent, 5>{0, 1, 5, 17, 29}) some[t] = true;
  expert_statistics whole(7), part(7), everyone(7);
  whole.add(a);
  check(whole, a, all);
  part.add(a, some);
  check(part, a, some);
  everyone.add(a, all);
  CHECK(same_bits(everyone, whole));
  CHECK(whole.log10_frequency()[3] == -infinity);
}

TEST_CASE("arrays of any layout and members of any type", "[expert_statistics]") {
  const double rows[2][3] = {{0.5, 0, -1}, {0.25, 0, 2}};
  const std::array<std::uint8_t, 2> second{0, 1};
  expert_statistics s(3);
  s.add(rows);
  CHECK(s.mean_coefficients() == std::vector<double>{0.375, 0, 0.5});
  CHECK(s.frequency() == std::vector<double>{1, 0, 1});
  CHECK(s.largest() == std::vector<double>{0.5, 0, 2});
  s.add(rows, second);
  CHECK(s.tokens() == 3);
  CHECK(s.counts() == std::vector<extent>{3, 0, 3});

  struct columns {  // stored column after column
    const double* data() const { return elements; }
    std::array<extent, 2> shape() const { return {2, 3}; }
    std::array<extent, 2> strides() const { return {1, 2}; }
    double elements[6] = {0.5, 0.25, 0, 0, -1, 2};
  };
  expert_statistics strided(3);
  strided.add(columns());
  CHECK(strided.mean_coefficients() == std::vector<double>{0.375, 0, 0.5});
}

TEMPLATE_TEST_CASE("the statistics of many experts are those of each alone", "[expert_statistics]",
                   float, double, bf16) {
  constexpr extent tokens = 5, experts = 31;
  auto a = coefficients<TestType>(tokens, experts);
  for (const extent n : {extent{2}, extent{7}, extent{30}})
    a(2, n) = convert<TestType>(std::numeric_limits<float>::quiet_NaN());
  tensor<TestType, 2> across({experts, tokens});
  for (extent n = 0; n < experts; ++n)
    for (extent t = 0; t < tokens; ++t) across(n, t) = a(t, n);
  struct columns {
    const TestType* data() const { return of.data(); }
    std::array<extent, 2> shape() const { return {tokens, experts}; }
    std::array<extent, 2> strides() const { return {1, tokens}; }
    const tensor<TestType, 2>& of;
  };
  expert_statistics together(experts), strided(experts);
  together.add(a);
  strided.add(columns{across});
  CHECK(same_bits(together, strided));
  for (extent n = 0; n < experts; ++n) {
    expert_statistics one(1);
    one.add(tensor<TestType, 2>({tokens, 1}, std::span(across.data() + n * tokens, tokens)));
    CHECK(one.counts()[0] == together.counts()[n]);
    CHECK(same_bits(std::vector{one.mean_coefficients()[0]},
                    std::vector{together.mean_coefficients()[n]}));
    CHECK(same_bits(std::vector{one.largest()[0]}, std::vector{together.largest()[n]}));
    CHECK(std::isnan(one.largest()[0]) == (n == 2 || n == 7 || n == 30));
  }
}

TEST_CASE("any number of threads and any cut into batches: the same bits", "[expert_statistics]") {
  const auto a = coefficients<float>(97, 1000);
  std::vector<bool> members(97);
  for (extent t = 0; t < 97; ++t) members[t] = t % 4 != 1;
  expert_statistics whole(1000), part(1000);
  whole.add(a);
  part.add(a, members);
  check(whole, a, std::vector<bool>(97, true));
  for (const int threads : {1, 2, 7})
    for (const extent step : {extent{1}, extent{13}, extent{96}, extent{97}})
      on_threads(threads, [&] {
        INFO(threads << " threads, batches of " << step);
        expert_statistics stream(1000), members_of_stream(1000);
        for (extent t = 0; t < 97; t += step) {
          const auto batch = rows(a, t, std::min(step, 97 - t));
          stream.add(batch);
          const auto first = members.begin() + static_cast<std::ptrdiff_t>(t);
          members_of_stream.add(
              batch,
              std::vector<bool>(first, first + static_cast<std::ptrdiff_t>(batch.shape()[0])));
        }
        CHECK(same_bits(stream, whole));
        CHECK(same_bits(members_of_stream, part));
      });
}

TEST_CASE("NaN counts, poisons the mean of its own expert and is the largest",
          "[expert_statistics]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expert_statistics s(3);
  s.add(tensor<double, 2>({3, 3}, {1, -1, 1, nan, -2, 0, 3, -3, 0}));
  CHECK(s.counts() == std::vector<extent>{3, 3, 1});
  CHECK(std::isnan(s.mean_coefficients()[0]));
  CHECK(std::isnan(s.largest()[0]));
  CHECK(s.mean_coefficients()[1] == -2);
  CHECK(s.largest()[1] == -1);
  CHECK(s.largest()[2] == 1);
}

TEST_CASE("of no tokens nothing is known", "[expert_statistics]") {
  expert_statistics s(2);
  const tensor<float, 2> a({3, 2}, {1, 1, 1, 1, 1, 1});
  s.add(tensor<float, 2>({0, 2}));
  s.add(a, std::vector<bool>(3));
  CHECK(s.tokens() == 0);
  CHECK(s.counts() == std::vector<extent>{0, 0});
  CHECK_THROWS_AS(s.frequency(), value_error);
  CHECK_THROWS_AS(s.log10_frequency(), value_error);
  CHECK_THROWS_AS(s.mean_coefficients(), value_error);
  CHECK_THROWS_AS(s.largest(), value_error);
  s.add(a, std::vector<bool>{false, true, false});
  CHECK(s.mean_coefficients() == std::vector<double>{1, 1});
}

TEST_CASE("batches of other shapes are refused and count nothing", "[expert_statistics]") {
  expert_statistics s(3);
  const tensor<float, 2> a({2, 3}, {1, 1, 1, 1, 1, 1});
  CHECK_THROWS_AS(s.add(tensor<float, 2>({2, 4})), shape_error);
  CHECK_THROWS_AS(s.add(tensor<float, 2>({2, 2})), shape_error);
  CHECK_THROWS_AS(s.add(tensor<float, 3>({2, 3, 1})), shape_error);
  CHECK_THROWS_AS(s.add(std::vector<float>(3)), shape_error);
  CHECK_THROWS_AS(s.add(a, std::vector<bool>(1)), shape_error);
  CHECK_THROWS_AS(s.add(a, std::vector<bool>(3)), shape_error);
  CHECK(s.tokens() == 0);
  CHECK(s.counts() == std::vector<extent>{0, 0, 0});
}

}  // namespace
