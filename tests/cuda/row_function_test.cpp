// SPDX-License-Identifier: MIT
// A block of threads makes a row as a warp does, within the rounding of its sums, whether shared
// memory has room for the row or not.
#include <cmath>
#include <random>

#include <fmoe/backend/cuda/emulated/block.hpp>
#include <fmoe/backend/cuda/kernels/row_function.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

template <class Kernel>
void launch(const Kernel& kernel, extent blocks) {
  block_runner runner(thread_order::shuffled);
  run_emulated(runner, {"rows", Kernel::threads, Kernel::shared_bytes, blocks}, kernel);
}

// What a kernel makes of rows of random numbers.
template <class T, unsigned Team>
std::vector<double> rows_of(row_function f, const std::vector<T>& x, extent columns) {
  const extent rows = x.size() / columns;
  std::vector<T> y(x.size());
  const T bound = T(0.5);
  const double parameter = f == row_function::entmax         ? 1.5
                           : f == row_function::best_groups  ? 2
                           : f == row_function::group_max    ? 5
                           : f == row_function::sparse_mixer ? 0.2
                                                             : 1e-3;
  launch(row_function_kernel<T, Team>{.f = f,
                                      .parameter = parameter,
                                      .groups = {5},
                                      .a = {x.data(), columns},
                                      .bound = {&bound, 0},
                                      .c = {y.data(), columns},
                                      .tokens = rows,
                                      .rows = 1,
                                      .columns = columns,
                                      .bounds = 1},
         teams<Team>::blocks(rows));
  return {y.begin(), y.end()};
}
template <class T, unsigned Team>
std::vector<double> norms_of(row_norm which, const std::vector<T>& x, extent columns) {
  const extent rows = x.size() / columns;
  std::vector<T> y(rows);
  launch(row_norm_kernel<T, Team>{which, {x.data(), columns}, {y.data(), 1}, rows, 1, columns},
         teams<Team>::blocks(rows));
  return {y.begin(), y.end()};
}

template <class T>
bool agree(const std::vector<double>& a, const std::vector<double>& b) {
  const double most = 30 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (extent i = 0; i < a.size(); ++i)
    if (!(std::abs(a[i] - b[i]) <= most * (std::abs(a[i]) + 0.1))) return false;
  return true;
}

TEMPLATE_TEST_CASE("blocks and warps make the same rows", "[cuda]", float, double) {
  using T = TestType;
  const extent room = teams<256>::template room<T>;
  for (const extent columns : {extent{3}, extent{1025}, room, room + 1}) {
    INFO(columns << " columns");
    std::mt19937 bits(3);
    std::normal_distribution<double> normal;
    std::vector<T> x(columns * (columns < 9 ? 5 : 1));
    for (T& v : x) v = static_cast<T>(normal(bits));
    using enum row_function;
    for (const row_function f :
         {softmax, bounded_softmax, layer_norm, rms_norm, clamped_rms_norm, sparse_mixer}) {
      INFO(name_of(f));
      CHECK(agree<T>(rows_of<T, 256>(f, x, columns), rows_of<T, 32>(f, x, columns)));
    }
    if (columns == 1025) {  // five groups
      CHECK(agree<T>(rows_of<T, 256>(entmax, x, columns), rows_of<T, 32>(entmax, x, columns)));
      CHECK(rows_of<T, 256>(best_groups, x, columns) == rows_of<T, 32>(best_groups, x, columns));
      CHECK(rows_of<T, 256>(group_max, x, columns) == rows_of<T, 32>(group_max, x, columns));
    }
    for (const row_norm n : {row_norm::l1, row_norm::l2, row_norm::max, row_norm::mean})
      CHECK(agree<T>(norms_of<T, 256>(n, x, columns), norms_of<T, 32>(n, x, columns)));
  }
}

}  // namespace
