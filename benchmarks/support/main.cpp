// SPDX-License-Identifier: MIT
// usage: fmoe_bench [--check] [--no-naive] [--benchmark_filter=REGEX] [--benchmark_format=json] ...
//        fmoe_bench --cuda ..., which gpu.cpp describes
//
// --check runs rows of tiny layers, checks their results and times each form once; it fails if a
// result is wrong. --no-naive leaves out the naive forms, which take seconds to make.
//
// The counters are medians over the rounds. of_roof is the time that the machine's roofs allow
// (peak_GFLOP/s and read_GB/s of as many threads, measured in the same round) divided by the
// layer's. vs_eigen, vs_naive and vs_blas say how many times as long Eigen, the naive form and the
// products of oneDNN take. predicted is the time that the planner predicts, divided by the layer's.
// Eigen, the naive form and oneDNN always compute in float, and each thread of Eigen takes a part
// of the rows. vs_blas exists if oneDNN was installed when CMake ran: scripts/install-dependencies
// libdnnl-dev.
#include "support/contest.hpp"

#include <fstream>
#include <functional>

#ifdef FMOE_ONEDNN
#include <dlfcn.h>
#include <dnnl.h>
#endif
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "support/random.hpp"
#include "support/roofline.hpp"

namespace fmoe::bench {
namespace {

bool tiny = false, with_naive = true, failed = false;

std::function<int(std::span<char*>)>& gpu_main() {
  static std::function<int(std::span<char*>)> run;
  return run;
}

std::vector<std::function<void(bool)>>& suites() {
  static std::vector<std::function<void(bool)>> all;
  return all;
}

bool agree(const contest& c, const tensor<float, 2>& a, const tensor<float, 2>& b) {
  const auto errors = differences(a, b);
  const auto wrong = std::ranges::count_if(errors, [](double e) { return !(e < 1e-4); });
  return static_cast<extent>(wrong) <= (c.selects ? c.tokens / 128 : 0);
}

// A form, and the times of its calls.
struct contestant {
  const char* counter;  // its time by the layer's
  std::function<void()> call;
  double once = 0;
  std::vector<double> times = {};

  void warm(extent threads) {
    const double start = seconds(threads);
    call();
    once = seconds(threads) - start;
  }

  // Measures for at least 10 ms, after as many calls that bring the weights back into the cache.
  void time(extent threads) {
    constexpr double shortest = 0.01;
    const auto repeats = static_cast<extent>(std::max(1.0, shortest / once));
    for (extent r = 0; repeats > 1 && r < repeats; ++r) call();
    const double start = seconds(threads);
    for (extent r = 0; r < repeats; ++r) call();
    times.push_back((seconds(threads) - start) / static_cast<double>(repeats));
  }
};

#ifdef FMOE_ONEDNN
// Runs the products with oneDNN's sgemm, one after the other, on one thread.
std::function<void()> by_blas(const contest& c) {
  static const auto set_threads =
      reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads == nullptr || c.products.empty()) return {};
  set_threads(1);
  extent inputs = 0, outputs = 0;
  for (const product& p : c.products) {
    inputs = std::max(inputs, p.rows * p.depth);
    outputs = std::max(outputs, p.rows * p.columns);
  }
  return [products = c.products, x = random_rows(1, inputs),
          y = tensor<float, 2>({1, outputs})]() mutable {
    for (const product& p : products) {
      const auto m = static_cast<dnnl_dim_t>(p.rows), k = static_cast<dnnl_dim_t>(p.depth),
                 n = static_cast<dnnl_dim_t>(p.columns);
      dnnl_sgemm('N', p.transposed ? 'T' : 'N', m, n, k, 1, x.data(), k, p.weight,
                 p.transposed ? k : n, 0, y.data(), n);
    }
  };
}
#else
std::function<void()> by_blas(const contest&) { return {}; }
#endif

// Runs Eigen on as many parts of the rows as there are threads.
void by_eigen(const contest& c, extent threads, tensor<float, 2>& y) {
  if (threads == 1 || c.tokens < threads) return c.by_eigen(0, c.tokens, y);
  tbb::parallel_for(extent{0}, threads, [&](extent part) {
    const extent first = c.tokens * part / threads;
    c.by_eigen(first, c.tokens * (part + 1) / threads - first, y);
  });
}

// Returns the time of the naive form, or 0 if it does not fit or takes too long. It is measured
// separately: after a gigabyte of weights the layer would find its own weights, which normally stay
// in L3, in DRAM for many calls. Sets `right`.
double naive_seconds(const contest& c, const tensor<float, 2>& y, bool& right) {
  constexpr double longest = 2e11;  // FLOPs: seconds
  if (!c.naive || !with_naive || c.naive_flops > longest) return 0;
  tensor<float, 2> y_naive(y.shape());
  const form naive = c.naive();
  contestant f{"", [&] { naive(y_naive); }};
  f.warm(1);
  right = agree(c, y, y_naive);
  for (int round = 0; round < 3; ++round) f.time(1);
  return median(f.times);
}

void measure(benchmark::State& state, const contest& c, extent threads) {
  const std::array shape{c.tokens, c.outputs};
  tensor<float, 2> y(shape), y_eigen(shape);
  std::vector<contestant> forms;
  forms.push_back({"", [&] { c.forward(y); }});
  if (c.by_eigen) forms.push_back({"vs_eigen", [&] { by_eigen(c, threads, y_eigen); }});
  if (threads == 1)
    if (auto products = by_blas(c)) forms.push_back({"vs_blas", std::move(products)});

  for (contestant& f : forms) f.warm(threads);
  if (c.by_eigen && !agree(c, y, y_eigen)) return reject(state, "fmoe and Eigen disagree");

  // The rounds take about a second together; the roofs of each round take 25 ms.
  double round = 0.025;
  for (const contestant& f : forms) round += std::max(f.once, 0.02);
  const int rounds = tiny ? 1 : std::clamp(static_cast<int>(1.2 / round), 3, 11);
  const read_buffer buffer(c.weight_bytes, threads);
  std::vector<double> peaks, bandwidths, of_roof;
  for (int r = 0; r < rounds; ++r) {
    peaks.push_back(peak_flops(threads));
    bandwidths.push_back(buffer.bandwidth());
    for (contestant& f : forms) f.time(threads);
    const double roof =
        std::max(c.flops / peaks.back(), (c.weight_bytes + c.row_bytes) / bandwidths.back());
    of_roof.push_back(roof / forms[0].times.back());
  }
  const double time = median(forms[0].times);
  bool right = true;
  const double naive = threads == 1 ? naive_seconds(c, y, right) : 0;
  if (!right) return reject(state, "fmoe and the naive form disagree");

  for (auto _ : state) state.SetIterationTime(time);
  for (const contestant& f : forms) {
    std::vector<double> ratios;
    for (extent r = 0; r < f.times.size(); ++r) ratios.push_back(f.times[r] / forms[0].times[r]);
    if (&f != forms.data()) state.counters[f.counter] = median(ratios);
  }
  if (naive > 0) state.counters["vs_naive"] = naive / time;
  if (c.predicted > 0) state.counters["predicted"] = c.predicted / time;
  state.counters["of_roof"] = median(of_roof);
  state.counters["GFLOP/s"] = 1e-9 * c.flops / time;
  state.counters["peak_GFLOP/s"] = 1e-9 * median(peaks);
  state.counters["read_GB/s"] = 1e-9 * median(bandwidths);
  state.counters["flops_factorized"] = c.flops;
  state.counters["flops_naive"] = c.naive_flops;
  state.counters["tokens_per_second"] = static_cast<double>(c.tokens) / time;
}

// Returns the name of the processor in /proc/cpuinfo, and the vectors that the kernels use.
std::string cpu_name() {
  const std::string vectors(cpu::native_arch::name());
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      return line.substr(line.find(':') + 2) + " (" + vectors + ')';
  return vectors;
}

}  // namespace

std::vector<double> differences(const tensor<float, 2>& a, const tensor<float, 2>& b) {
  const extent width = a.shape()[1];
  std::vector<double> errors(a.shape()[0]);
  double norm = 0;
  for (extent i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a.data()[i]), y = static_cast<double>(b.data()[i]);
    const double error = std::abs(x - y);
    errors[i / width] = std::max(errors[i / width], std::isnan(error) ? HUGE_VAL : error);
    norm = std::max(norm, std::abs(y));
  }
  for (double& e : errors) e /= norm;
  return errors;
}

gpu_program::gpu_program(std::function<int(std::span<char*>)> run) { gpu_main() = std::move(run); }

void reject(benchmark::State& state, const char* why) {
  failed = true;
  state.SkipWithError(why);
}

suite::suite(std::function<void(bool)> add) { suites().push_back(std::move(add)); }

void add_rows(const std::string& name, const make_model& make, std::vector<int> tokens,
              const std::vector<int>& threads) {
  if (tiny) tokens = {1, 19};
  const auto run = [name, make](benchmark::State& state) {
    static std::string held;
    static std::unique_ptr<model> layer;
    if (held != name) {
      layer.reset();
      layer = make();
      held = name;
    }
    const auto count = static_cast<extent>(state.range(0)),
               processors = static_cast<extent>(state.range(1));
    tbb::task_arena(static_cast<int>(processors)).execute([&] {
      measure(state, layer->on(count), processors);
    });
  };
  auto* rows = benchmark::RegisterBenchmark(name.c_str(), run);
  rows->ArgNames({"tokens", "threads"})
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
  for (const int t : tokens)
    for (const int p : threads) rows->Args({t, p});
}

}  // namespace fmoe::bench

int main(int argc, char** argv) {
  const auto take = [&](std::string_view argument) {
    const auto end = std::remove(argv + 1, argv + argc, argument);
    const bool found = end != argv + argc;
    argc = static_cast<int>(end - argv);
    return found;
  };
  if (take("--cuda")) try {
      if (const auto& run = fmoe::bench::gpu_main())
        return run(std::span(argv + 1, static_cast<std::size_t>(argc - 1)));
      std::fputs("this program has no kernels of GPUs: fmoe_bench has\n", stderr);
      return 2;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
      return 2;
    }
  fmoe::bench::tiny = take("--check");
  fmoe::bench::with_naive = !take("--no-naive");
  for (const auto& add : fmoe::bench::suites()) add(fmoe::bench::tiny);
  benchmark::AddCustomContext("cpu", fmoe::bench::cpu_name());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return fmoe::bench::failed ? 1 : 0;
}
