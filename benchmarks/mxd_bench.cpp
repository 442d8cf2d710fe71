// SPDX-License-Identifier: MIT
// One MxD layer on one core: fmoe, the same algorithm written by hand in Eigen, and the naive form (every expert
// materialised) where it fits in memory. All must agree before anything is timed; they are timed in interleaved rounds,
// and the counters are ratios of medians.
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include <benchmark/benchmark.h>
#include <tbb/task_arena.h>
#include <Eigen/Core>
#include <unsupported/Eigen/SpecialFunctions>

#include <fmoe/cost.hpp>
#include <fmoe/mxd.hpp>

#include "support/roofline.hpp"

namespace {

using fmoe::extent, fmoe::mxd, fmoe::tensor;
using matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using map = Eigen::Map<const matrix>;
using row_map = Eigen::Map<const Eigen::RowVectorXf>;

struct size {
  const char* name;
  extent i, h, n, o, k;
};

template <class Tensor>
Tensor random(const std::array<extent, Tensor::rank>& shape, unsigned seed, float scale) {
  Tensor t(shape);
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, scale);
  for (extent i = 0; i < t.size(); ++i) t.data()[i] = normal(bits);
  return t;
}

mxd<float> make_layer(const size& s) {
  using matrix = fmoe::parameter<float, 2>;
  using vector = fmoe::parameter<float, 1>;
  const auto by = [](extent fan_in) { return 1 / std::sqrt(static_cast<float>(fan_in)); };
  mxd<float> m;
  m.encoder = random<matrix>({s.i, s.h}, 1, by(s.i));
  m.encoder_bias = random<vector>({s.h}, 2, 0.1f);
  m.gate = random<matrix>({s.i, s.n}, 3, by(s.i));
  m.gate_bias = random<vector>({s.n}, 4, 0.1f);
  m.scales = random<matrix>({s.n, s.o}, 5, 1);
  m.decoder = random<matrix>({s.h, s.o}, 6, by(s.h));
  m.bias = random<vector>({s.o}, 7, 0.1f);
  m.active = s.k;
  return m;
}

template <std::size_t Rank>
map as_matrix(const tensor<float, Rank>& t) {
  return {t.data(), static_cast<Eigen::Index>(t.shape()[0]), static_cast<Eigen::Index>(t.shape()[1])};
}
row_map as_row(const tensor<float, 1>& t) { return {t.data(), static_cast<Eigen::Index>(t.size())}; }

// The factorized layer as a careful Eigen user writes it: three products, top-k by nth_element, K rows gathered.
void by_eigen(const mxd<float>& m, const tensor<float, 2>& x, matrix& y) {
  const matrix scores = ((as_matrix(x) * as_matrix(m.gate)).rowwise() + as_row(m.gate_bias)).cwiseMax(0.0f);
  matrix z = (as_matrix(x) * as_matrix(m.encoder)).rowwise() + as_row(m.encoder_bias);
  z = (z.array() * 0.5f * (1.0f + (z.array() * 0.70710678f).erf())).matrix();
  y.noalias() = z * as_matrix(m.decoder);
  const map scales = as_matrix(m.scales);
  std::vector<int> order(static_cast<extent>(scores.cols()));
  Eigen::RowVectorXf mixed(y.cols());
  for (Eigen::Index t = 0; t < y.rows(); ++t) {
    std::iota(order.begin(), order.end(), 0);
    const auto row = scores.row(t);
    const auto better = [&](int a, int b) { return row[a] > row[b] || (row[a] == row[b] && a < b); };
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(m.active), order.end(), better);
    mixed.setZero();
    for (extent k = 0; k < m.active; ++k) mixed += row[order[k]] * scales.row(order[k]);
    y.row(t) = y.row(t).cwiseProduct(mixed) + as_row(m.bias);
  }
}

double difference(const float* a, const float* b, extent n) {
  double error = 0, norm = 0;
  for (extent i = 0; i < n; ++i) {
    error = std::max(error, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    norm = std::max(norm, std::abs(static_cast<double>(b[i])));
  }
  return error / norm;
}

// Seconds of one call, over enough calls to last 10 ms.
template <class F>
double seconds_of(const F& f, extent repeats) {
  const double start = fmoe::bench::thread_seconds();
  for (extent r = 0; r < repeats; ++r) f();
  return (fmoe::bench::thread_seconds() - start) / static_cast<double>(repeats);
}

void run(benchmark::State& state, const size& s) {
  const auto tokens = static_cast<extent>(state.range(0));
  const mxd<float> layer = make_layer(s);
  const auto x = random<tensor<float, 2>>({tokens, s.i}, 8, 1);
  tensor<float, 2> y({tokens, s.o}), y_naive({tokens, s.o});
  matrix y_eigen(static_cast<Eigen::Index>(tokens), static_cast<Eigen::Index>(s.o));

  const bool fits = s.n * s.h * s.o <= extent{1} << 27;  // half a gigabyte
  const auto forward = fmoe::compile(layer, tokens);
  fmoe::plan_options naive_options;
  naive_options.naive = true;
  using naive_t = decltype(fmoe::compile(layer, tokens, 1, naive_options));
  std::optional<naive_t> naive;
  if (fits) naive.emplace(fmoe::compile(layer, tokens, 1, naive_options));

  forward(x, y);
  by_eigen(layer, x, y_eigen);
  if (fits) (*naive)(x, y_naive);
  if (difference(y.data(), y_eigen.data(), y.size()) > 1e-4) return state.SkipWithError("fmoe and Eigen disagree");
  if (fits && difference(y.data(), y_naive.data(), y.size()) > 1e-4) return state.SkipWithError("fmoe and the naive form disagree");

  const fmoe::cost_report cost = fmoe::cost(layer(x));
  const double flops = cost.factorized.flops() * static_cast<double>(tokens), bytes = cost.factorized.bytes;
  std::vector<double> fmoe_times, eigen_times, naive_times, peaks, bandwidths;
  const double once = seconds_of([&] { forward(x, y); }, 1);
  const auto repeats = static_cast<extent>(std::max(1.0, 0.01 / once));
  for (auto _ : state) {
    peaks.push_back(fmoe::bench::peak_flops());
    bandwidths.push_back(fmoe::bench::read_bandwidth(static_cast<extent>(cost.factorized.parameters) * sizeof(float)));
    fmoe_times.push_back(seconds_of([&] { forward(x, y); }, repeats));
    eigen_times.push_back(seconds_of([&] { by_eigen(layer, x, y_eigen); }, 1));
    if (fits) naive_times.push_back(seconds_of([&] { (*naive)(x, y_naive); }, 1));
    state.SetIterationTime(fmoe_times.back());
  }
  const double time = fmoe::bench::median(fmoe_times);
  const double roof = std::max(flops / *std::ranges::max_element(peaks), bytes / *std::ranges::max_element(bandwidths));
  state.counters["GFLOP/s"] = 1e-9 * flops / time;
  state.counters["of_roof"] = roof / time;
  state.counters["vs_eigen"] = fmoe::bench::median(eigen_times) / time;
  if (fits) state.counters["vs_naive"] = fmoe::bench::median(naive_times) / time;
  state.counters["flops_factorized"] = flops;
  state.counters["flops_naive"] = 2 * cost.naive_multiply_adds * static_cast<double>(tokens);
  state.counters["tokens_per_second"] = static_cast<double>(tokens) / time;
}

}  // namespace

int main(int argc, char** argv) {
  // GPT-2's of the paper's Table 2; the real one of examples/data; one whose 4,096 experts fit in memory one by one.
  static constexpr size sizes[] = {
      {"gpt2", 768, 3072, 21'490, 768, 32}, {"minilm", 384, 1536, 4096, 384, 32}, {"small", 128, 256, 4096, 128, 32}};
  for (const size& s : sizes)
    benchmark::RegisterBenchmark((std::string("mxd/") + s.name).c_str(), [&s](benchmark::State& state) { run(state, s); })
        ->ArgName("tokens")
        ->Arg(1)
        ->Arg(16)
        ->Arg(128)
        ->Iterations(11)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  benchmark::Initialize(&argc, argv);
  tbb::task_arena(1).execute([] { benchmark::RunSpecifiedBenchmarks(); });
}
