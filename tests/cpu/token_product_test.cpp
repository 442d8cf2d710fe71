// SPDX-License-Identifier: MIT
// Sums over tokens that are products of matrices have the bits of the plain sums, whichever operand
// has the rows, for any parts, and where they add to a result.
#include <fmoe/backend/cpu/kernels/token_sum.hpp>

#include <vector>

#include "../support/catch.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using arch = cpu::native_arch;
using plan::nest_axis;

// c (+)= the sums of blocks, each by plain loops.
template <class T>
void plain_sums(const plan::token_sum_step& s, cpu::token_rows<T> a, cpu::token_rows<T> b, T* c,
                extent tokens, bool adds) {
  for (extent first = 0; first == 0 || first < tokens; first += s.block) {
    const nest_axis summed{std::min(s.block, tokens - first), a.stride, b.stride, 0};
    cpu::nest<T, arch>(a.data + first * a.stride, b.data + first * b.stride, c, s.out, {&summed, 1},
                       first == 0 && !adds ? cpu::sum_into::nothing : cpu::sum_into::total);
  }
}

// token_sum has the bits of plain sums for a result with these axes.
template <class T>
void check_sum(const plan::token_sum_step& s, extent a_size, extent b_size, extent tokens) {
  const auto x = random<tensor<T, 2>>({tokens + 1, a_size + 3}, 1),
             y = random<tensor<T, 2>>({tokens + 1, b_size + 2}, 2);
  const cpu::token_rows<T> a{x.data(), a_size + 3}, b{y.data(), b_size + 2};
  const auto held = random<tensor<T, 1>>({a_size * b_size + 1}, 3);
  detail::memory scratch(s.product_room() * sizeof(T));
  for (const bool adds : {false, true}) {
    const std::vector<T> before(held.data(), held.data() + held.size());
    std::vector<T> expected = before;
    plain_sums<T>(s, a, b, expected.data(), tokens, adds);
    for (const extent parts : {extent{1}, extent{3}}) {
      std::vector<T> made = before;
      for (extent p = 0; p < parts; ++p)
        cpu::token_sum<T, arch>(s, a, b, made.data(), reinterpret_cast<T*>(scratch.data()), tokens,
                                p, parts, adds);
      CHECK((made == expected));  // long vectors would take minutes to print
    }
  }
}

// The same for axes that are those of a product.
template <class T>
void check_product(const plan::token_sum_step& s, extent a_size, extent b_size, extent tokens) {
  REQUIRE(cpu::token_product::of(s.out, s.summed, s.block).has_value());
  check_sum<T>(s, a_size, b_size, tokens);
}

TEMPLATE_TEST_CASE("sums over tokens by gemm have the bits of plain sums", "[cpu][token_sum]",
                   float, double) {
  for (const extent rows : {extent{14}, extent{40}, extent{520}})
    for (const extent columns : {extent{32}, extent{77}, extent{150}})
      for (const extent tokens : {extent{0}, extent{1}, extent{31}, extent{32}, extent{75}})
        for (const bool swapped : {false, true}) {
          if (rows == 520 && columns != 77) continue;  // which takes sanitizers long
          INFO(rows << " x " << columns << " of " << tokens << (swapped ? ", swapped" : ""));
          plan::token_sum_step s;
          s.b.storage = 0;
          s.block = 32;
          if (swapped) s.out = {{rows, 0, 1, columns}, {columns, 1, 0, 1}};
          else s.out = {{rows, 1, 0, columns}, {columns, 0, 1, 1}};
          check_product<TestType>(s, swapped ? columns : rows, swapped ? rows : columns, tokens);
        }
}

TEMPLATE_TEST_CASE("the axes of an operand may lie apart in the result", "[cpu][token_sum]", float,
                   double) {
  for (const extent length : {extent{4}, extent{50}, extent{140}})
    for (const extent tokens : {extent{0}, extent{31}, extent{75}}) {
      INFO("runs of " << length << ", " << tokens << " tokens");
      const extent m = 40, q = length == 4 ? 9 : 3;
      plan::token_sum_step s;
      s.b.storage = 0;
      s.block = 32;
      {  // as in ti,tqr->qir
        s.out = {{q, 0, length, m * length}, {m, 1, 0, length}, {length, 0, 1, 1}};
        check_product<TestType>(s, m, q * length, tokens);
      }
      {  // as in tqr,ti->qir
        s.out = {{q, length, 0, m * length}, {m, 0, 1, length}, {length, 1, 0, 1}};
        check_product<TestType>(s, q * length, m, tokens);
      }
      {  // rows apart, too
        s.out = {{q, 0, length, m * length},
                 {m / 8, 8, 0, 8 * length},
                 {8, 1, 0, length},
                 {length, 0, 1, 1}};
        std::swap(s.out[0], s.out[1]);
        s.out[0].c = q * 8 * length;
        s.out[1].c = 8 * length;
        check_product<TestType>(s, m, q * length, tokens);
      }
    }
}

TEMPLATE_TEST_CASE("short runs of a result may be cut, and those of many rows follow each other",
                   "[cpu][token_sum]", float, double) {
  constexpr extent m = 520, q = 19, length = 7;  // more rows and columns than a tile has
  plan::token_sum_step s;
  s.b.storage = 0;
  s.block = 16;
  s.out = {{q, 0, length, m * length}, {m, 1, 0, length}, {length, 0, 1, 1}};
  check_product<TestType>(s, m, q * length, 20);
}

TEMPLATE_TEST_CASE("at each place of axes of both operands the others are those of a product",
                   "[cpu][token_sum]", float, double) {
  constexpr extent h = 3, l = 2, m = 40, k = 50;  // as in thlm,tlhk->hmlk
  plan::token_sum_step s;
  s.b.storage = 0;
  s.block = 32;
  s.out = {{h, l * m, k, m * l * k}, {m, 1, 0, l * k}, {l, m, h * k, k}, {k, 0, 1, 1}};
  for (const extent tokens : {extent{0}, extent{31}, extent{75}})
    check_sum<TestType>(s, h * l * m, l * h * k, tokens);
}

}  // namespace
