// SPDX-License-Identifier: MIT
// Kernels that give a selection's row to a warp, or a row of a table to many threads, do what the
// plain ones do, in which one thread walks over a row.
#include <cmath>
#include <cstring>
#include <random>

#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/select_steps.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

constexpr extent tokens = 5, rows = 2, columns = 75;

// Selections of random entries, and a NaN in each number that nobody wrote.
struct selections {
  extent keep;
  std::vector<float> of;

  explicit selections(extent most, unsigned seed = 0)
      : keep(most),
        of(tokens * rows * size(), std::numeric_limits<float>::quiet_NaN()) {
    std::mt19937 bits(7);
    if (seed == 0) return;
    for (extent t = 0; t < tokens; ++t)
      for (extent r = 0; r < rows; ++r) {
        const auto s = at().row(t, r);
        s.count() = 0;
        const extent wanted = t == 0 ? 0 : keep - t;
        for (extent n = 0; n < columns && s.count() < wanted; ++n)
          if (bits() % columns < keep + 20)
            s.add(n % 9 == 4 ? 0.f : static_cast<float>(bits() % 1000) / 300 - 1, n);
      }
  }
  extent size() const { return selection_row<float>::size(keep); }
  selections_at<float> at() { return {{of.data(), rows * size()}, keep}; }

  // The counts and the entries that are kept, values to a tolerance.
  bool is(selections& other, float tolerance = 0) {
    for (extent t = 0; t < tokens; ++t)
      for (extent r = 0; r < rows; ++r) {
        const auto a = at().row(t, r), b = other.at().row(t, r);
        if (a.count() != b.count()) return false;
        for (extent k = 0; k < a.count(); ++k)
          if (a.indices()[k] != b.indices()[k] ||
              !(std::abs(a.values()[k] - b.values()[k]) <= tolerance))
            return false;
      }
    return true;
  }
};

std::vector<float> numbers(extent n, unsigned seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(bits);
  return x;
}

template <class F>
void each(const F& f, extent n) {
  for (extent i = 0; i < n; ++i) f(i);
}
template <class Kernel>
void launch(const Kernel& kernel, extent warps_needed) {
  block_runner runner(thread_order::shuffled);
  run_emulated(runner,
               {"warps", Kernel::threads, Kernel::shared_bytes, warps::blocks(warps_needed)},
               kernel);
}

TEST_CASE("a warp weighs a row of a selection", "[cuda]") {
  const auto scores = numbers(tokens * rows * columns, 1);
  using enum weighting;
  for (const weighting how : {score, one, relu, softmax, softmax_of_all}) {
    INFO(static_cast<int>(how));
    selections a(45, 3), b(45, 3);
    const auto plain = [&](selections& of) {
      return weigh_rows<float>{of.at(), {scores.data(), rows * columns}, rows, columns, how};
    };
    each(plain(a), tokens * rows);
    launch(weigh_kernel<float>{plain(b), tokens}, tokens * rows);
    CHECK(b.is(a, how == softmax || how == softmax_of_all ? 1e-6f : 0));
  }
}

TEST_CASE("a warp multiplies the entries of a row by factors", "[cuda]") {
  auto factors = numbers(rows * columns, 3);
  for (extent n = 0; n < factors.size(); n += 5) factors[n] = 0;
  selections from(45, 3), a(45), b(45);
  const auto plain = [&](selections& to) {
    return rescale_rows<float>{from.at(), to.at(), factors.data(), rows, columns};
  };
  each(plain(a), tokens * rows);
  launch(rescale_kernel<float>{plain(b), tokens}, tokens * rows);
  CHECK(b.is(a));
}

TEST_CASE("behind the kept entries of a row are values of 0 and indices of -1", "[cuda]") {
  selections from(45, 3);
  const extent keep = from.keep;
  std::vector<float> values(tokens * rows * keep), indices(values);
  const auto kept = [&](std::vector<float>& c, kept_part what) {
    each(kept_numbers<float>{from.at(), {c.data(), rows * keep}, rows, keep, what}, c.size());
  };
  kept(values, kept_part::value);
  kept(indices, kept_part::index);
  for (extent i = 0; i < values.size(); ++i) {
    const auto s = from.at().row(i / keep / rows, i / keep % rows);
    const extent entry = i % keep;
    CHECK(values[i] == (entry < s.count() ? s.values()[entry] : 0));
    CHECK(indices[i] == (entry < s.count() ? static_cast<float>(s.indices()[entry]) : -1));
  }
}

TEST_CASE("a warp keeps the greatest entries that reach a mass", "[cuda]") {
  auto x = numbers(tokens * rows * columns, 2);
  for (extent i = 0; i < columns; ++i) x[i] = std::round(x[i]);
  x[columns + 7] = std::numeric_limits<float>::quiet_NaN();
  x[2 * columns + 70] = std::numeric_limits<float>::infinity();
  for (const double mass : {0., 0.3, 0.9, 2.}) {
    INFO(mass);
    selections a(columns), b(columns);
    const rows_at<const float> from{x.data(), rows * columns};
    each(mass_rows<float>{from, a.at(), rows, columns, mass}, tokens * rows);
    launch(mass_kernel<float>{{from, b.at(), rows, columns, mass}, tokens}, tokens * rows);
    const float infinite = std::numeric_limits<float>::infinity();
    for (auto* s : {&a, &b})  // NaN and infinity do not compare
      for (float& v : s->of)
        if (std::isnan(v) || v == infinite) v = 9;
    CHECK(b.is(a));
  }
}

TEST_CASE("threads expand a row, gather marks and rows of a table", "[cuda]") {
  selections from(45, 3);
  std::vector<float> dense(tokens * rows * columns, 7.f), plain(dense);
  const expand_rows<float> expand{from.at(), {plain.data(), rows * columns}, rows, columns};
  each(expand, tokens * rows);
  expand_lanes<float> lanes{expand, 32};
  lanes.of.c.data = dense.data();
  each(lanes, tokens * rows * lanes.lanes);
  CHECK(dense == plain);

  const auto scores = numbers(tokens * columns, 4);
  selections a(columns), b(columns);
  for (auto* s : {&a, &b})
    for (extent t = 0; t < tokens; ++t)
      for (extent e = 0; e < columns; ++e) s->at().row(t, 0).indices()[e] = (t + e * e) % 3 == 0;
  each(gather_choices<float>{{scores.data(), columns}, a.at()}, tokens);
  launch(choices_kernel<float>{{{scores.data(), columns}, b.at()}, tokens}, tokens);
  for (extent t = 0; t < tokens; ++t) {
    const auto x = a.at().row(t, 0), y = b.at().row(t, 0);
    REQUIRE(x.count() == y.count());
    CHECK(std::equal(x.values(), x.values() + x.count(), y.values()));
    CHECK(std::equal(x.indices(), x.indices() + x.count(), y.indices()));
  }
}

struct alignas(16) quad {
  float of[4];
};

TEST_CASE("a thread of a gather makes four columns, and a warp a product with a table's row",
          "[cuda]") {
  for (const extent width : {extent{12}, extent{150}}) {
    selections from(45, 3), a(45), b(45);
    const extent table_row = columns * width;
    std::vector<quad> memory(rows * table_row / 4 + 1), left(tokens * width / 4 + 1);
    float *const table = memory.data()->of, *const x = left.data()->of;
    std::ranges::copy(numbers(rows * table_row, 5), table);
    std::ranges::copy(numbers(tokens * width, 6), x);
    std::vector<float> c(tokens * width), d(c), e(c);
    const gather_rows<float> plain{from.at(), table, {c.data(), width}, rows, width, table_row, {}};
    each(plain, c.size());
    each(
        gather_columns<float, float, 1>{
            from.at(), table, {d.data(), width}, rows, width, table_row, {}},
        d.size());
    CHECK(c == d);
    if (width % 4 == 0) {
      each(
          gather_columns<float, float, 4>{
              from.at(), table, {e.data(), width}, rows, width, table_row, {}},
          e.size() / 4);
      CHECK(c == e);
    }

    each(sample_rows<float>{from.at(), a.at(), {x, width}, table, rows, width, table_row, {}},
         tokens * rows * 45);
    const auto sampled = [&](bool aligned) {
      launch(
          sample_kernel<float>{
              from.at(), b.at(), {x, width}, table, tokens, rows, width, table_row, aligned, {}},
          tokens * rows * 45);
      return b.of;
    };
    const auto one = sampled(false);
    CHECK(b.is(a, 1e-4f));
    if (width % 4 == 0) {
      const auto four = sampled(true);
      CHECK(std::memcmp(one.data(), four.data(), one.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace
