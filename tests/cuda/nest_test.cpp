// SPDX-License-Identifier: MIT
// Threads that make four neighbours of a small product have the bits of those that make one.
#include <cstring>
#include <random>

#include <fmoe/backend/cuda/kernels/nest_columns.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

template <class T>
struct alignas(16) access {
  T of[16 / sizeof(T)];
};

TEST_CASE("rows of a pass that are shorter than the result repeat", "[cuda]") {
  const float other[] = {1, 2, 3};
  passes<float> added;
  added.of[0] = {.what = pass_kind::add, .f = {}, .parameter = 0, .other = other, .period = 3};
  added.count = 1;
  CHECK(added(10.f, 0, 2) == 13);
  float two[] = {10, 10};  // before the end of the row, and behind it
  added(two, 0, [](unsigned e) { return number_place{7, 2 + 2 * e}; });
  CHECK(two[0] == 13);
  CHECK(two[1] == 12);
}

TEMPLATE_TEST_CASE("neighbours of a small product have the bits of single numbers", "[cuda]", float,
                   double) {
  using T = TestType;
  constexpr extent rows = 3, p = 5, i = 7, m = 12, n = 5000;
  std::vector<access<T>> memory(n), plain(n), one(n), four(n);
  T* const x = memory.data()->of;
  std::mt19937 bits(3);
  std::normal_distribution<double> normal;
  for (extent k = 0; k < n; ++k) x[k] = static_cast<T>(normal(bits));
  // c[p, m] is the sum over i of a[p, i] b[i, m]; over m and i; a alone; a copy.
  nest_numbers<T> product{.a = {x, 40}, .b = {x + 400, 88}};
  product.out.add({p, i, 0, m});
  product.out.add({m, 0, 1, 1});
  product.summed.add({i, 1, m, 0});
  nest_numbers<T> two = product;
  two.summed.add({2, 3, 4, 0});
  nest_numbers<T> sum{.a = {x, 88}};
  sum.out.add({m, 1, 0, 1});
  sum.summed.add({i, m, 0, 0});
  nest_numbers<T> copy{.a = {x, 88}, .is_copy = true};
  copy.out.add({84, 1, 0, 1});
  copy.finish.of[0] = {
      .what = pass_kind::add, .f = {}, .parameter = 0, .other = x + 9, .stride = 3, .period = 84};
  copy.finish.of[1] = {.what = pass_kind::map, .f = pointwise::silu, .parameter = 0};
  copy.finish.count = 2;
  nest_numbers<T> empty = product;
  empty.summed = {};
  empty.summed.add({0, 1, m, 0});
  for (nest_numbers<T>* k : {&product, &two, &sum, &copy, &empty}) {
    INFO((k == &product ? "product" : k == &two ? "two" : k == &sum ? "sum" : "copy"));
    const auto run = [&](const auto& kernel, extent each) {
      for (extent t = 0; t < rows * k->out.places / each; ++t) kernel(t);
    };
    const auto at = [&](std::vector<access<T>>& c) {
      k->c = {c.data()->of, 96};
      return *k;
    };
    constexpr unsigned own = numbers_each<T>;
    run(at(plain), 1);
    run(nest_columns<T, 1>{at(one)}, 1);
    REQUIRE(has_whole_accesses(at(four)));
    run(nest_columns<T, own>{at(four)}, own);
    CHECK(std::memcmp(plain.data(), one.data(), n * sizeof(T)) == 0);
    CHECK(std::memcmp(plain.data(), four.data(), n * sizeof(T)) == 0);
  }
}

TEST_CASE("neighbours that no access has are told", "[cuda]") {
  std::vector<access<float>> memory(100);
  float* const x = memory.data()->of;
  const auto check = [&](extent stride, const nest_loop& outer, const nest_loop& last,
                         extent first = 0) {
    nest_numbers<float> k{.a = {x + first, stride}, .c = {x, 96}, .is_copy = true};
    k.out.add(outer);
    k.out.add(last);
    return has_whole_accesses(k);
  };
  CHECK(check(8, {2, 4, 0, 4}, {4, 1, 0, 1}));
  CHECK(!check(8, {2, 4, 0, 4}, {4, 1, 0, 1}, 1));  // another beginning
  CHECK(!check(9, {2, 4, 0, 4}, {4, 1, 0, 1}));     // rows
  CHECK(!check(8, {2, 5, 0, 4}, {4, 1, 0, 1}));     // places
  CHECK(!check(8, {2, 4, 0, 5}, {4, 1, 0, 1}));     // places of the result
  CHECK(!check(8, {2, 4, 0, 4}, {6, 1, 0, 1}));     // length
  CHECK(!check(8, {2, 4, 0, 4}, {4, 2, 0, 1}));     // neighbours
  CHECK(!check(8, {2, 4, 0, 4}, {4, 1, 0, 2}));     // of the result
  CHECK(check(9, {2, 5, 0, 4}, {4, 0, 0, 1}));      // one for all
}

}  // namespace
