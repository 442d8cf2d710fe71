// SPDX-License-Identifier: MIT
// Compares every selection with a stable sort of the whole row, for many rows and chunks.
#include <fmoe/backend/cpu/kernels/top_k.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "../support/catch.hpp"

// An architecture with vectors of one number, which count how often numbers are compared.
namespace {

struct counting_arch {};
std::uint64_t comparisons = 0;

}  // namespace

template <>
class xsimd::batch<float, counting_arch> {
 public:
  static constexpr std::size_t size = 1;
  struct batch_bool_type {
    bool lane;

    friend batch_bool_type operator|(batch_bool_type a, batch_bool_type b) {
      return {a.lane || b.lane};
    }
  };

  batch(float x) : lane_(x) {}
  static batch load_unaligned(const float* p) { return *p; }
  void store_unaligned(float* p) const { *p = lane_; }

  friend batch_bool_type operator<(batch a, batch b) { return counted(a.lane_ < b.lane_); }
  friend batch_bool_type operator<=(batch a, batch b) { return counted(a.lane_ <= b.lane_); }
  friend batch_bool_type operator>(batch a, batch b) { return counted(a.lane_ > b.lane_); }
  friend batch_bool_type isnan(batch a) { return {std::isnan(a.lane_)}; }
  friend batch select(batch_bool_type m, batch a, batch b) { return m.lane ? a : b; }
  friend batch operator^(batch a, batch b) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a.lane_) ^
                                std::bit_cast<std::uint32_t>(b.lane_));
  }

 private:
  static batch_bool_type counted(bool lane) {
    ++comparisons;
    return {lane};
  }

  float lane_;
};

namespace fmoe::cpu {

template <>
vec<float, counting_arch> load_part<float, counting_arch>(const float* p, extent n, float fill) {
  return n == 1 ? *p : fill;
}
template <>
std::uint64_t to_bits<float, counting_arch>(const mask<float, counting_arch>& m) {
  return m.lane ? 1 : 0;
}

}  // namespace fmoe::cpu

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

std::mt19937 engine(11);

extent random_up_to(extent n) { return std::uniform_int_distribution<extent>(0, n)(engine); }

template <class T>
struct generator {
  const char* name;
  std::function<T(extent, extent)> value;  // value of element i of n
};

template <class T>
std::vector<generator<T>> generators() {
  static std::normal_distribution<T> normal;
  constexpr T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
  constexpr T tiny = std::numeric_limits<T>::denorm_min(), huge = std::numeric_limits<T>::max();
  return {
      {"normal", [](extent, extent) { return normal(engine); }},
      {"relu", [](extent, extent) { return std::max(T(0), normal(engine)); }},
      {"negative", [](extent, extent) { return -std::abs(normal(engine)); }},
      {"equal", [](extent, extent) { return T(3); }},
      {"equal, negative", [](extent, extent) { return T(-3); }},
      {"zero of both signs", [](extent i, extent) { return i % 3 ? T(0.0) : T(-0.0); }},
      {"mostly zero", [](extent, extent) { return random_up_to(200) ? T(0) : normal(engine); }},
      {"zero, then negative",
       [](extent i, extent n) { return i < n / 2 ? T(0) : T(-1) - static_cast<T>(i); }},
      {"negative, then zero",
       [](extent i, extent n) { return i < n / 2 ? T(-1) - static_cast<T>(i) : T(0); }},
      {"ascending", [](extent i, extent) { return static_cast<T>(i); }},
      {"descending", [](extent i, extent) { return -static_cast<T>(i); }},
      {"few values", [](extent, extent) { return static_cast<T>(random_up_to(4)) - 2; }},
      {"-inf", [](extent, extent) { return -inf; }},
      {"-inf, mostly", [](extent, extent) { return random_up_to(50) ? -inf : normal(engine); }},
      {"inf", [](extent, extent) { return inf; }},
      {"NaN", [](extent, extent) { return nan; }},
      {"NaN of both signs, inf",
       [](extent, extent) { return random_up_to(1)   ? inf
                                   : random_up_to(1) ? nan
                                                     : -nan; }},
      {"NaN, inf and others",
       [](extent, extent) {
         return random_up_to(2) ? normal(engine) : random_up_to(1) ? nan : inf;
       }},
      {"some NaN",
       [](extent, extent) {
         return random_up_to(30) ? normal(engine) : random_up_to(1) ? nan : -nan;
       }},
      {"subnormal",
       [](extent, extent) { return static_cast<T>(random_up_to(20)) * tiny - 10 * tiny; }},
      {"the whole range", [](extent, extent) { return random_up_to(1) ? huge : -huge; }},
      {"late spike", [](extent i, extent n) { return i + 1 == n ? huge : T(1); }},
      {"neighbours",
       [](extent i, extent) {
         return 1 + static_cast<T>(i * 7919 % 64) * std::numeric_limits<T>::epsilon();
       }},
      {"any bits",
       [](extent, extent) {
         std::uint64_t bits = engine() | std::uint64_t{engine()} << 32;
         T x;
         std::memcpy(&x, &bits, sizeof(T));
         return x;
       }},
  };
}

template <class T>
std::vector<std::uint32_t> best(const std::vector<T>& x, extent k) {
  std::vector<std::uint32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) {
    if (std::isnan(x[b])) return false;
    return std::isnan(x[a]) || x[a] > x[b];
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  std::erase_if(order, [&](auto i) { return x[i] == 0; });
  return order;
}

template <class T>
void compare(const std::vector<T>& x, extent k, extent most, bool whole) {
  const std::vector<std::uint32_t> expected = best(x, k);
  const extent size = cpu::top_k_state_size<T, arch>(k);
  std::vector<T> state(size + 9, T(7));
  T* const at = state.data() + 1;
  extent base = 0;
  do {
    const extent n = whole ? x.size() : std::min(x.size() - base, random_up_to(most));
    const std::vector<T> chunk(x.data() + base,
                               x.data() + base + n);  // its own memory: reading past it is an error
    cpu::top_k_scan<T, arch>({at, k}, k, chunk.data(), n, base, base == 0, false);
    base += n;
  } while (base < x.size());
  cpu::top_k_finish<T, arch>({at, k}, k, weighting::score, nullptr, 0);
  const cpu::selected<T> s = cpu::top_k_result<T, arch>(at, k);
  REQUIRE(std::vector<std::uint32_t>(s.indices, s.indices + s.count) == expected);
  bool values_agree = true;
  for (extent i = 0; i < s.count; ++i)
    values_agree &= std::memcmp(&s.values[i], &x[s.indices[i]], sizeof(T)) == 0;
  REQUIRE(values_agree);
  REQUIRE(state[0] == 7);
  REQUIRE(std::count(state.begin() + 1 + static_cast<std::ptrdiff_t>(size), state.end(), T(7)) ==
          8);
}

TEMPLATE_TEST_CASE("top-k is the stable sort's, for any row in any chunks", "[cpu][top_k]", float,
                   double) {
  for (const auto& g : generators<TestType>())
    for (const extent n : std::initializer_list<extent>{1, 2, 63, 64, 65, 200, 1024, 1025, 3000})
      for (const extent k : std::initializer_list<extent>{0, 1, 8, 32, 33, 1000, n - 1, n}) {
        if (k > n) continue;
        INFO(g.name << ", " << k << " of " << n);
        std::vector<TestType> x(n);
        for (extent i = 0; i < n; ++i) x[i] = g.value(i, n);
        compare(x, k, n, true);
        compare(x, k, 100, false);
      }
}

TEST_CASE("top-k has room for any k", "[cpu][top_k]") {
  std::vector<float> x(300000);
  std::normal_distribution<float> normal;
  for (float& v : x) v = normal(engine);
  compare(x, 100000, 70000, false);
  compare(x, 300000, 70000, false);
}

// Every entry of this row is a candidate. The candidates are cut when more than 2 k have gathered,
// which takes k new ones, and a cut has a pass for each step of a bisection. It takes up to 19
// comparisons an entry, however long the row is.
TEST_CASE("top-k of an ascending row takes a linear number of comparisons", "[cpu][top_k]") {
  constexpr extent most = 24;
  for (const extent n : {extent{1} << 12, extent{1} << 15, extent{1} << 18})
    for (const extent k : {extent{1}, extent{32}, n / 64, n / 8, n / 2}) {
      std::vector<float> row(n), state(cpu::top_k_state_size<float, counting_arch>(k));
      std::iota(row.begin(), row.end(), 0.f);
      const cpu::top_k_state<float, counting_arch> s(state.data(), k);
      comparisons = 0;
      cpu::top_k_scan<float, counting_arch>(s, k, row.data(), n, 0, true, false);
      if (s.count > k) cpu::top_k_cut(s, k);
      INFO(k << " of " << n << ": " << static_cast<double>(comparisons) / static_cast<double>(n)
             << " comparisons an entry");
      CHECK(comparisons >= n);
      CHECK(comparisons <= most * n);
      REQUIRE(s.count == k);
      CHECK(s.indices[0] == n - k);
      CHECK(s.indices[k - 1] == n - 1);
    }
}

// The row is long enough for a bound from groups of it.
TEMPLATE_TEST_CASE("zeros are selected where they count", "[cpu][top_k]", float, double) {
  using T = TestType;
  const extent n = 1000, k = 7;
  std::vector<T> row(n, T(0)), state(cpu::top_k_state_size<T, arch>(k));
  for (const extent i : std::initializer_list<extent>{2, 500, 999}) row[i] = 3;
  cpu::top_k_scan<T, arch>({state.data(), k}, k, row.data(), n, 0, true, true);
  cpu::top_k_finish<T, arch>({state.data(), k}, k, weighting::one, nullptr, 0);
  const auto s = cpu::top_k_result<T, arch>(state.data(), k);
  CHECK(std::vector<std::uint32_t>(s.indices, s.indices + s.count) ==
        std::vector<std::uint32_t>{0, 1, 2, 3, 4, 500, 999});
}

}  // namespace
