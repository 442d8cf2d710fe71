// SPDX-License-Identifier: MIT
// Compares the bits with those of the plain nest, for random loops over random strides and for the
// shapes that layers have.
#include <fmoe/backend/cpu/kernels/small_product.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../support/catch.hpp"
#include "../support/seeds.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;
using axes = std::vector<plan::nest_axis>;

std::mt19937 engine(11);
extent any(extent most) { return engine() % (most + 1); }

std::string text(const axes& out, const axes& summed) {
  std::string s;
  for (const axes* list : {&out, &summed}) {
    for (const plan::nest_axis& x : *list)
      s += ' ' + std::to_string(x.length) + '(' + std::to_string(x.a) + ' ' + std::to_string(x.b) +
           ' ' + std::to_string(x.c) + ')';
    s += " |";
  }
  return s;
}

// Returns one more than the offset of the last element.
extent reach(const axes& out, const axes& summed, extent plan::nest_axis::* stride) {
  extent n = 1;
  for (const axes* list : {&out, &summed})
    for (const plan::nest_axis& x : *list) n += x.length == 0 ? 0 : (x.length - 1) * x.*stride;
  return n;
}

// `one` leaves out the second operand, whose strides are then 0.
template <class T>
void check(axes out, axes summed, bool one = false) {
  if (one)
    for (axes* list : {&out, &summed})
      for (plan::nest_axis& x : *list) x.b = 0;
  INFO(text(out, summed));
  std::uniform_real_distribution<T> real(-1, 1);
  constexpr extent margin = 20;
  // The arrays are exactly as long as what may be read, so that sanitizers and heap checks see
  // more.
  std::vector<T> a(reach(out, summed, &plan::nest_axis::a)),
      b(reach(out, summed, &plan::nest_axis::b)),
      c(reach(out, summed, &plan::nest_axis::c) + margin);
  for (auto* v : {&a, &b, &c})
    for (T& x : *v) x = real(engine);
  const cpu::small_product<T, arch> product((cpu::loop_axes(out)), cpu::loop_axes(summed));
  using enum cpu::sum_into;
  for (const cpu::sum_into held : {nothing, started, total}) {
    std::vector<T> expected = c, made = c;
    cpu::nest<T, arch>(a.data(), one ? nullptr : b.data(), expected.data(), out, summed, held);
    product(a.data(), one ? nullptr : b.data(), made.data(), held);
    REQUIRE(std::memcmp(made.data(), expected.data(), made.size() * sizeof(T)) == 0);
  }
}

// Makes the axes contiguous in c; a row of c may be wider than what is written.
void lay_out(axes& out) {
  extent stride = 1;
  for (extent i = out.size(); i-- > 0;) {
    out[i].c = stride;
    stride = stride * out[i].length + any(1) * 3;
  }
}

TEMPLATE_TEST_CASE("small products have the bits of the plain nest", "[cpu][small_product]", float,
                   double) {
  constexpr extent lane = cpu::lanes<TestType, arch>;
  for_each_seed(3000, [&](unsigned round) {
    axes out(any(4)), summed(any(3));
    for (plan::nest_axis& x : out) x = {1 + any(7), any(2) * any(40), any(2) * any(40), 0};
    for (plan::nest_axis& x : summed) x = {any(round % 10 == 0 ? 3 : 9), any(30), any(30), 0};
    if (!out.empty()) {
      plan::nest_axis& v = out.back();
      v.length = 1 + any(3 * lane);
      v.a = any(1);
      v.b = round % 4 == 0 ? any(1) : 1 - v.a;  // often one operand has the vectors
    }
    lay_out(out);
    check<TestType>(out, summed, round % 5 == 0);
  });
}

TEMPLATE_TEST_CASE("every number of rows and columns", "[cpu][small_product]", float, double) {
  constexpr extent lane = cpu::lanes<TestType, arch>;
  for (extent rows = 1; rows <= 19; ++rows)
    for (extent columns = 1; columns <= 5 * lane; columns += columns < lane ? 1 : 5) {
      check<TestType>({{rows, 1, 0, columns}, {columns, 0, 1, 1}},
                      {{5, rows, columns, 0}});  // tsp,tsr->tpr
      check<TestType>({{rows, 0, 7, columns + 2}, {columns, 1, 0, 1}},
                      {{7, columns, 1, 0}});                                   // tsr,tps->tpr
      check<TestType>({{rows, 1, columns, columns}, {columns, 0, 1, 1}}, {});  // ts,tsm->tsm
      check<TestType>({{rows, columns, 0, 1}}, {{columns, 1, 0, 0}}, true);    // tpi->tp
      check<TestType>({{columns, 0, 1, rows}, {rows, columns, 0, 1}},
                      {{2, rows * columns, columns, 0}});
    }
}

TEMPLATE_TEST_CASE("a sum goes on where another call left it", "[cpu][small_product]", float,
                   double) {
  using T = TestType;
  std::uniform_real_distribution<T> real(-1, 1);
  const extent p = 6, m = 12, s = 100;
  std::vector<T> g(p * s), u(s * m), once(p * m), parts(p * m);
  for (auto* v : {&g, &u})
    for (T& x : *v) x = real(engine);
  const axes out{{p, s, 0, m}, {m, 0, 1, 1}};
  const auto sum = [&](extent n) {
    return cpu::small_product<T, arch>((cpu::loop_axes(out)), cpu::loop_axes(axes{{n, 1, m, 0}}));
  };
  sum(s)(g.data(), u.data(), once.data());
  sum(64)(g.data(), u.data(), parts.data());
  sum(s - 64)(g.data() + 64, u.data() + 64 * m, parts.data(), cpu::sum_into::started);
  CHECK(once == parts);
}

TEST_CASE("axes that run like one are one", "[cpu][small_product]") {
  cpu::loop_axes list;
  list.join({3, 20, 8, 40});
  list.join({1, 7, 7, 7});
  list.join({4, 5, 2, 10});
  REQUIRE(list.size() == 1);
  CHECK(list[0] == plan::nest_axis{12, 5, 2, 10});
  list.join({5, 1, 1, 2});
  REQUIRE(list.size() == 2);
  CHECK(list.take(0) == plan::nest_axis{12, 5, 2, 10});
  REQUIRE(list.size() == 1);
  CHECK(list[0] == plan::nest_axis{5, 1, 1, 2});
}

}  // namespace
