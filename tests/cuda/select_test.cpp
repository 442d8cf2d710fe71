// SPDX-License-Identifier: MIT
// Selections that keep a row in registers take the entries of the plain one, which reads the row
// digit by digit, whatever is equal, infinite or no number.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/select_steps.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

// The selections of some rows, every byte of them.
template <class T, class Kernel>
std::vector<T> selected(Kernel kernel, extent blocks, extent rows, extent keep,
                        thread_order order) {
  std::vector<T> to(rows * selection_row<T>::size(keep));
  kernel.to = {{to.data(), selection_row<T>::size(keep)}, keep};
  block_runner runner(order);
  run_emulated(runner, {"select", Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
  return to;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Rows of random numbers, of a few different ones, of one, and of what is no number.
template <class T>
std::vector<T> rows_of(extent rows, extent columns) {
  std::mt19937 bits(7);
  std::normal_distribution<double> normal;
  std::vector<T> x(rows * columns);
  for (extent i = 0; i < x.size(); ++i) {
    const extent row = i / columns;
    x[i] = static_cast<T>(row % 4 == 1   ? std::round(normal(bits))
                          : row % 4 == 2 ? 0.
                                         : normal(bits));
    using limits = std::numeric_limits<T>;
    const T odd[] = {limits::quiet_NaN(), limits::infinity(), -limits::infinity(), T(-0.0), T(0)};
    if (row % 4 == 3 && bits() % 2 == 0) x[i] = odd[bits() % 5];
  }
  return x;
}

TEMPLATE_TEST_CASE("registers and warps select what digits select", "[cuda]", float, double) {
  using T = TestType;
  constexpr extent rows = 4;
  for (const extent columns : {extent{1}, extent{31}, extent{100}, extent{128}}) {
    const auto x = rows_of<T>(rows, columns);
    for (const bool takes_zeros : {false, true})
      for (const extent keep : {extent{0}, extent{1}, extent{9}, extent{64}}) {
        INFO(keep << " of " << columns);
        const rows_at<const T> a{x.data(), columns};
        const auto expected = selected<T>(select_kernel<T>{a, {}, 1, columns, false, takes_zeros},
                                          rows, rows, keep, thread_order::ascending);
        using registers = select_kernel<T, in_registers<2, 64>>;
        CHECK(same(selected<T>(registers{a, {}, 1, columns, false, takes_zeros}, rows, rows, keep,
                               thread_order::shuffled),
                   expected));
        CHECK(same(selected<T>(warp_select_kernel<T, 4>{a, {}, rows, 1, columns, takes_zeros}, 1,
                               rows, keep, thread_order::shuffled),
                   expected));
        if (columns <= 32)
          CHECK(same(selected<T>(warp_select_kernel<T, 1>{a, {}, rows, 1, columns, takes_zeros}, 1,
                                 rows, keep, thread_order::shuffled),
                     expected));
      }
  }
}

TEST_CASE("a row of 21,490 scores lies in the registers of one block", "[cuda]") {
  constexpr extent columns = 21490, keep = 32;
  auto x = rows_of<float>(1, columns);
  const rows_at<const float> a{x.data(), columns};
  const auto both_are_same = [&] {
    using registers = select_kernel<float, in_registers<22, 1024>>;
    return same(selected<float>(registers{a, {}, 1, columns, false, false}, 1, 1, keep,
                                thread_order::ascending),
                selected<float>(select_kernel<float>{a, {}, 1, columns, false, false}, 1, 1, keep,
                                thread_order::ascending));
  };
  CHECK(both_are_same());
  // One thread has all of the greatest, so that its greatest alone says little of them.
  for (extent i = 0; i < 20; ++i) x[i * 1024 + 5] = 100 + static_cast<float>(i % 3);
  CHECK(both_are_same());
}

TEMPLATE_TEST_CASE("blocks that share a row select what one block does", "[cuda]", float, double) {
  using T = TestType;
  constexpr extent tokens = 4;
  struct selection {
    extent columns, keep;
    bool takes_zeros;
  };
  // Parts of 1,024, and a last part that is shorter than what is kept.
  for (const auto& [columns, keep, takes_zeros] :
       {selection{2048, 1, false}, {2048, 200, true}, {1036, 32, true}, {2060, 200, false}}) {
    INFO(keep << " of " << columns);
    const auto x = rows_of<T>(tokens, columns);
    const select_kernel<T> k{{x.data(), columns}, {}, 1, columns, false, takes_zeros};
    const auto expected = selected<T>(k, tokens, tokens, keep, thread_order::ascending);
    const row_parts parts{columns, in_few_registers::most, keep};
    std::vector<T> memory(candidate_rows<T>::size(tokens, parts.candidates() + keep),
                          std::numeric_limits<T>::infinity());  // which would be selected
    const emulated_device on(0, {.order = thread_order::shuffled});
    emulated_device::queue queue(on, nullptr);
    std::vector<T> to(tokens * selection_row<T>::size(keep));
    select_kernel<T> here = k;
    here.to = {{to.data(), selection_row<T>::size(keep)}, keep};
    select_in_parts(queue, here, tokens, parts, memory.data(), 3);  // tokens at a time
    CHECK(same(to, expected));
  }
}

TEST_CASE("rows are cut where no block has registers for them", "[cuda]") {
  CHECK(parts_of_row<float>(22528, 32).count() == 1);
  CHECK(parts_of_row<float>(22529, 32).each == 1024);
  CHECK(parts_of_row<float>(262144, 32).candidates() == 8192);
  CHECK(parts_of_row<float>(1048576, 32).each == 8192);
  CHECK(parts_of_row<float>(1048576, 257).count() == 1);
  CHECK(parts_of_row<float>(0, 32).count() == 0);
  CHECK(room_for_candidates<float>(16, 262144, 32) == 16 * 2 * 8192);
  CHECK(room_for_candidates<float>(16, 22528, 32) == 0);
}

}  // namespace
