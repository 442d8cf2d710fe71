// SPDX-License-Identifier: MIT
// Compares random expressions, built directly as graphs, with the oracle: default and tiny limits,
// the naive plan, a GPU's emulated blocks, float and double; and checks the bits of a row beside
// any other rows.
#include <cstdlib>

#include <fmoe/cuda.hpp>

#include "support/agree.hpp"
#include "support/census.hpp"
#include "support/oracle.hpp"
#include "support/random_expression.hpp"
#include "support/run.hpp"
#include "support/seeds.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T>
double error(const std::vector<T>& y, const std::vector<double>& expected, double scale) {
  double largest = 0;
  for (extent i = 0; i < expected.size(); ++i) largest = std::max(largest, std::abs(expected[i]));
  return relative_error(y.data(), expected) *
         (largest == 0 || scale == 0 ? 1 : largest / std::max(largest, scale));
}

template <class T>
void check(const random_expression& e, const std::vector<double>& expected, double scale,
           double tolerance) {
  const runner<T> normal(e.g, e.root(), all, usual_limits()),
      cut(e.g, e.root(), all, tiny_limits()), original(e.g, e.root(), all, naive_limits());
  const extent tokens = normal.steps().token_count;
  const std::vector<T> y = normal.all();
  REQUIRE(y.size() == expected.size());
  CHECK(error(y, expected, scale) <= tolerance);
  CHECK(error(original.all(), expected, scale) <= tolerance);
  CHECK(same_bits(cut.all(), y));
  static const auto gpu = cuda::gpu_or_emulated({.order = cuda::thread_order::shuffled});
  compile_options on_gpu = limited<T>(tiny_limits());
  on_gpu.on = gpu;
  CHECK(error(computed<T>(e.g, e.root(), on_gpu), expected, scale) <= tolerance);
  for (const runner<T>* r : {&normal, &cut, &original}) CHECK(placement_is_sound(r->steps()));
  if (!normal.steps().tokens || tokens == 0) return;
  const extent width = y.size() / tokens;
  for (const runner<T>* r : {&normal, &cut})
    for (const extent split : {extent{1}, extent{5}, extent{17}})
      CHECK(same_bits(r->rows(0, tokens, std::min(split, r->steps().tile)), y));
  if (cut.has_stages()) return;
  const extent row = tokens / 2;
  CHECK(same_bits(cut.rows(row, 1, 1),
                  std::vector<T>(y.begin() + static_cast<std::ptrdiff_t>(row * width),
                                 y.begin() + static_cast<std::ptrdiff_t>((row + 1) * width))));
}

void check(unsigned seed, census& seen) {
  const random_expression e(seed);
  INFO("FMOE_SEED=" << seed << "  " << e.text() << "  result " << static_cast<int>(e.root()));
  const auto expected = oracle(e.g)[e.root()];
  double scale = 0;
  if (!e.exact()) {
    const random_expression positive(seed, true);
    const oracle magnitudes(positive.g);
    for (const double x : magnitudes[positive.root()]) scale = std::max(scale, std::abs(x));
  }
  check<float>(e, expected, scale, e.exact() ? 0 : 2e-5);
  check<double>(e, expected, scale, e.exact() ? 0 : 1e-13);
  seen.add(make_plan(e.g, e.root(), all, on_this_cpu<float>(tiny_limits())));
}

TEST_CASE("random expressions agree with the oracle, and their rows keep their bits") {
  census seen;
  if (!for_each_seed(500, [&](unsigned seed) { check(seed, seen); })) return;
  seen.require(2, {"accumulate",       "append",       "batched",       "chunks",
                   "clamped rms norm", "entmax",       "expand",        "gather",
                   "gather epilogue",  "gemm",         "gemm epilogue", "layer norm",
                   "L1 norm",          "L2 norm",      "loop gemm",     "loop pointwise",
                   "loop select",      "many rows",    "max norm",      "mean",
                   "no tokens",        "once batched", "once expand",   "once pointwise",
                   "once reduce",      "once select",  "pass *",        "pass +",
                   "pass /",           "pass max",     "pass min",      "pass where",
                   "pass where not",   "pointwise",    "reduce",        "rms norm",
                   "softmax",          "top_k",        "top_p"});
}

}  // namespace
