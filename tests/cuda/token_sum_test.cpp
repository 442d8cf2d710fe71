// SPDX-License-Identifier: MIT
// Sums over tokens in parts, sums without pairs by blocks, and the ends of groups by accesses of 16
// bytes have the bits of their plain kernels, in which a thread makes a number.
#include <cstring>
#include <random>

#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/kernels/exclude.hpp>
#include <fmoe/backend/cuda/kernels/sort_kernel.hpp>
#include <fmoe/backend/cuda/token_sum_steps.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

// Random numbers, the first of which begins an access.
template <class T>
class numbers {
 public:
  explicit numbers(extent n, unsigned seed = 1) : quads_(n / 4 + 1) {
    std::mt19937 bits(seed);
    std::normal_distribution<double> normal;
    for (extent i = 0; i < n; ++i) data()[i] = static_cast<T>(normal(bits));
  }
  T* data() { return quads_.data()->of; }
  const T* data() const { return quads_.data()->of; }
  bool operator==(const numbers& other) const {
    return std::memcmp(quads_.data(), other.quads_.data(), quads_.size() * sizeof(quad)) == 0;
  }

 private:
  struct alignas(16) quad {
    T of[4];
  };
  std::vector<quad> quads_;
};

template <class F>
void each(const F& f, extent n) {
  for (extent i = 0; i < n; ++i) f(i);
}

struct device {
  emulated_device on{0, {.order = thread_order::shuffled}};
  emulated_device::queue queue{on, nullptr};
};

TEMPLATE_TEST_CASE("sums over tokens have their bits in any number of parts", "[cuda]", float,
                   double) {
  using T = TestType;
  constexpr extent rows = 70, columns = 40, block = 20, width = 80;
  numbers<T> x(70 * width, 1), y(70 * width, 2), sums(10 * rows * columns, 3);
  device d;
  for (const extent tokens : {extent{0}, extent{1}, extent{20}, extent{67}})
    for (const extent shift : {extent{0}, extent{1}}) {
      token_sums<T> k{{x.data() + shift, width}, {y.data(), width}, nullptr, {}, {}, tokens, block};
      const auto check = [&](const char* name, bool is_product = false) {
        INFO(name << ", " << tokens << " tokens, beginning " << shift);
        const numbers<T> before(2 * rows * columns, 4);
        numbers<T> plain = before, quick = before;
        CHECK((is_token_product(k) || is_token_product(swapped(k))) == is_product);
        k.c = plain.data();
        each(k, k.out.places);
        k.c = quick.data();
        for (const extent room : {extent{0}, k.out.places, 3 * k.out.places, 10 * rows * columns}) {
          std::memcpy(quick.data(), before.data(), 2 * rows * columns * sizeof(T));
          sum_tokens(d.queue, k, sums.data(), std::min(room, 10 * rows * columns));
          CHECK(plain == quick);
        }
      };
      k.out.add({rows, 1, 0, columns});
      k.out.add({columns, 0, 1, 1});
      check("product", true);
      std::swap(k.out.of[0], k.out.of[1]);
      check("transposed product", true);
      k.out = {};
      k.out.add({2, 4, 8, 2000});
      k.out.add({30, 0, 1, 60});
      k.out.add({33, 1, 0, 1});
      check("matrices", true);
      k.out = {};
      k.out.add({72, 1, 1, 1});
      check("neighbours");
      k.summed.add({3, 0, 2, 0});
      k.summed.add({2, 4, 0, 0});
      k.out = {};
      k.out.add({64, 1, 1, 1});
      check("more sums");
      k.b = {};
      check("one operand");
      k.summed = {};
      check("neighbours of one operand");
      k.out = {};
      check("one number");
    }
}

// Selections of up to `keep` indices.
template <class T>
numbers<T> selected(extent tokens, extent keep, extent experts) {
  std::mt19937 bits(3);
  numbers<T> of(tokens * selection_row<T>::size(keep));
  const selections_at<T> at{{of.data(), selection_row<T>::size(keep)}, keep};
  for (extent t = 0; t < tokens; ++t) {
    const auto s = at.row(t, 0);
    s.count() = 0;
    for (extent e = bits() % 3; e < experts && s.count() < keep && t % 7 != 3;
         e += 1 + bits() % (experts / 2))
      s.add(static_cast<T>(bits() % 100) / 7, e);
  }
  return of;
}

TEMPLATE_TEST_CASE("sums of what tokens selected have their bits in any number of parts", "[cuda]",
                   float, double) {
  using T = TestType;
  constexpr extent keep = 3, experts = 9, width = 24;
  device d;
  for (const extent tokens : {extent{1}, extent{64}, extent{300}})
    for (const extent columns : {extent{24}, extent{5}, extent{1}})
      for (const extent block : {extent{64}, extent{128}, extent{50}}) {
        INFO(tokens << " tokens, " << columns << " columns, blocks of " << block);
        auto entries = selected<T>(tokens, keep, experts);
        numbers<T> b(tokens * width, 2), sums(4000);
        const selections_at<T> from{{entries.data(), selection_row<T>::size(keep)}, keep};
        const sort_places places{tokens, keep, experts, 16};
        std::vector<cuda::index> memory(places.size());
        const sort_lists lists{places, memory.data()};
        sort_entries(d.queue, lists, from);
        const rows_at<const T> rows{columns == 1 ? nullptr : b.data(), width};
        numbers<T> plain(experts * columns, 5), quick = plain;
        const bool by_columns = tokens == 300;
        selection_sums<T> k{lists,
                            from,
                            rows,
                            plain.data(),
                            columns,
                            by_columns ? 1 : columns,
                            by_columns ? experts : 1,
                            block};
        each(k, experts * columns);
        k.c = quick.data();
        for (const extent room : {extent{0}, 2 * experts * columns + 903, extent{4000}}) {
          sum_selections(d.queue, k, sums.data(), room);
          CHECK(plain == quick);
          std::fill_n(quick.data(), experts * columns, T(7));
        }
      }
}

TEMPLATE_TEST_CASE("ends of groups have the same bits by accesses of 16 bytes", "[cuda]", float,
                   double) {
  using T = TestType;
  constexpr extent tokens = 40, keep = 11, experts = 30, columns = 24, width = 28;
  constexpr unsigned own = numbers_each<T>;
  auto entries = selected<T>(tokens, keep, experts);
  numbers<T> a(tokens * keep * width), plain(tokens * columns, 5), one = plain, four = plain;
  std::vector<cuda::index> rows(tokens * keep);
  std::mt19937 bits(8);
  for (auto& row : rows) row = static_cast<cuda::index>(bits() % (tokens * keep));
  const selections_at<T> from{{entries.data(), selection_row<T>::size(keep)}, keep};
  const auto at = [&](numbers<T>& c) {
    put_rows<T> k{{a.data(), width}, {c.data(), columns}, from, rows.data(), columns, {}};
    k.finish.of[0] = {.what = pass_kind::map, .f = pointwise::silu, .parameter = 0};
    k.finish.count = 1;
    return k;
  };
  each(at(plain), tokens * columns);
  each(put_columns<T, 1>{at(one)}, tokens * columns);
  each(put_columns<T, own>{at(four)}, tokens * columns / own);
  CHECK(plain == one);
  CHECK(plain == four);
}

TEMPLATE_TEST_CASE("sums without pairs have the same bits by blocks", "[cuda]", float, double) {
  using T = TestType;
  constexpr extent tokens = 3, heads = 2, groups = 4;
  device d;
  for (const auto& [others, width, is_summed] : {std::tuple<extent, extent, bool>{300, 1, true},
                                                 {300, 130, true},
                                                 {140, 1, false},
                                                 {140, 3, false},
                                                 {130, 131, false}}) {
    // c[t, g, w] is the sum over heads and others of x[t, h, g] y[t, h, o] z[o, w]; c[t, g, o, w]
    // is the sum over heads alone.
    const extent of_group = (is_summed ? 1 : others) * width;
    numbers<T> x(tokens * heads * groups, 1), y(tokens * heads * others, 2), z(others * width, 3);
    for (extent i = 0; i < tokens * heads * others; i += 3) y.data()[i] = 0;
    const auto last = static_cast<cuda::index>(others - 1);
    const std::vector<cuda::index> made{0, 3}, ends{3, 4}, left_out{0, 127, last, 5};
    numbers<T> plain(tokens * groups * of_group, 4), quick = plain;
    for (const bool is_row : {true, false}) {
      INFO(others << " others, " << width << " columns, summed " << is_summed);
      exclude_numbers<T> k{};
      k.c = {plain.data(), groups * of_group};
      k.count = 3;
      k.factors = 2;
      k.group = {groups, of_group, {1, 0, 0}};
      k.other = {others, is_summed ? 0 : width, {0, 1, width}};
      k.groups = made.data();
      k.ends = ends.data();
      k.left_out = left_out.data();
      k.group_count = made.size();
      k.is_row = is_row;
      k.operands[0] = {x.data(), heads * groups};
      k.operands[1] = {y.data(), heads * others};
      k.operands[2] = {z.data(), 0};
      const auto add = [](exclude_loops& all, const exclude_loop& loop) {
        all.of[all.count++] = loop;
        all.places *= loop.length;
      };
      add(is_row ? k.outer : k.inner, {heads, 0, {groups, others, 0}});
      add(k.free, {width, 1, {0, 0, 1}});
      each(k, tokens * k.numbers());
      k.c.data = quick.data();
      exclude(d.queue, k, tokens);
      CHECK(plain == quick);
      const extent second = is_summed ? 0 : width;  // the first pair is left out
      CHECK(plain.data()[second] != 0);
    }
  }
}

}  // namespace
