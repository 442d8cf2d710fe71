// SPDX-License-Identifier: MIT
// Sums along a row are compared by their bits with plain loops that add in the same order: number i
// goes to lane i modulo the length of a vector, and lanes are added halves to halves. A vector of
// ARM64 counts as half of one, so that the order is that of AVX2.
#include <fmoe/backend/cpu/kernels/entmax.hpp>
#include <fmoe/backend/cpu/kernels/sample.hpp>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;

template <class T>
constexpr extent length = cpu::vectors_of_sum<arch> * cpu::lanes<T, arch>;
static_assert(!cpu::is_neon<arch> || length<float> == 8);
static_assert(!cpu::is_neon<arch> || length<double> == 4);

std::mt19937 engine(11);

template <class T>
std::vector<T> numbers(extent n) {
  std::vector<T> x(n);
  for (T& v : x) v = std::uniform_real_distribution<T>(-1, 1)(engine);
  return x;
}

template <class T>
T halves_to_halves(std::vector<T> lane) {
  for (extent half = lane.size() / 2; half > 0; half /= 2)
    for (extent i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

// a b + c, as a vector computes it.
template <class T>
T fmadd(T a, T b, T c) {
  T lane[cpu::lanes<T, arch>];
  using v = cpu::vec<T, arch>;
  cpu::store<T, arch>(lane, cpu::fmadd<T, arch>(v(a), v(b), v(c)));
  return lane[0];
}

const std::initializer_list<extent> sizes{1, 3, 4, 5, 8, 15, 16, 17, 31, 32, 37, 100, 767};

TEMPLATE_TEST_CASE("the sum of exponentials has the order of lanes", "[cpu][lane_sums]", float,
                   double) {
  using T = TestType;
  for (const extent n : sizes) {
    const std::vector<T> x = numbers<T>(n);
    std::vector<T> y(n);
    const T found = cpu::exponentials<T, arch>(x.data(), y.data(), n, T(1), T(-1));
    y.resize(round_up(n, length<T>));  // what fills up the last vector counts as 0
    std::vector<T> total(length<T>), lost(length<T>);
    for (extent i = 0; i < y.size(); ++i) {
      T &t = total[i % length<T>], &l = lost[i % length<T>];
      const T term = y[i] - l, next = t + term;
      l = (next - t) - term;
      t = next;
    }
    INFO("n " << n);
    REQUIRE(found == halves_to_halves(total));
  }
}

TEMPLATE_TEST_CASE("the sums of entmax have the order of lanes, in two chains", "[cpu][lane_sums]",
                   float, double) {
  using T = TestType;
  for (const extent n : sizes) {
    const std::vector<T> z = numbers<T>(n);
    const T tau = T(-0.25);
    const auto found = cpu::entmax_sums<T, arch, 2>(z.data(), n, tau);
    std::vector<T> totals(2 * length<T>), slopes(totals);
    const extent whole = n / totals.size() * totals.size();  // the rest goes to the first chain
    for (extent i = 0; i < n; ++i) {
      const extent at = i % (i < whole ? totals.size() : length<T>);
      const T d = z[i] <= tau ? T(0) : z[i] - tau;
      totals[at] = fmadd(d, d, totals[at]);
      slopes[at] += d;
    }
    INFO("n " << n);
    REQUIRE(found.first == halves_to_halves(totals));
    REQUIRE(found.second == halves_to_halves(slopes));
  }
}

TEMPLATE_TEST_CASE("the products with selected rows have the order of lanes, in two chains",
                   "[cpu][lane_sums]", float, double) {
  using T = TestType;
  for (const extent n : sizes) {
    const std::vector<T> x = numbers<T>(n), table = numbers<T>(n);
    const std::uint32_t index = 0;
    T found = 0;
    cpu::sample<T, arch>(x.data(), table.data(), n, {nullptr, &index, 1}, {nullptr, &index, 1},
                         &found);
    std::vector<T> sums(2 * length<T>);
    for (extent i = 0; i < n; ++i)
      sums[i % sums.size()] = fmadd(x[i], table[i], sums[i % sums.size()]);
    INFO("n " << n);
    REQUIRE(found == halves_to_halves(sums));
  }
}

}  // namespace
