// SPDX-License-Identifier: MIT
// usage: fmoe_bench --cuda [--tiny] [--only=TEXT] [--csv=FILE] [--save=FOLDER] [--seconds=N]
// [--once]
//
// Times layers on a GPU, for each number of tokens and each arithmetic; --only takes layers whose
// name has a text. A result is compared with the CPU's before it is timed, and a wrong one makes
// the program fail. Where there is no GPU it runs tiny layers on emulated blocks, whose times say
// nothing of a GPU. --csv writes the table to a file, too. --save writes each layer with some rows
// and their results, for benchmarks/peers/torch_gpu.py. After N seconds no other row is begun.
//
// A time is that of one call of many that follow each other on a stream, by the clock of the host,
// which waits for the stream before and behind them; or of a CUDA graph of one call. The median of
// five such measurements counts. The roof is that of `explain` for this GPU, without launches.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include <fmoe/cuda.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/fmoe.hpp>

#include "contest.hpp"
#include "gpu_layers.hpp"
#include "roofline.hpp"

namespace fmoe::bench {
namespace {

using cuda::math;

struct gpu_options {
  bool tiny = false, once = false;
  std::string only, csv, save;
  double seconds = HUGE_VAL;

  // Throws value_error for what is not known.
  explicit gpu_options(std::span<char*> arguments) {
    for (const std::string_view a : arguments) {
      const auto value = [&](std::string_view name) {
        return a.starts_with(name) ? std::optional(std::string(a.substr(name.size())))
                                   : std::nullopt;
      };
      if (a == "--tiny") tiny = true;
      else if (a == "--once") once = true;
      else if (const auto text = value("--only=")) only = *text;
      else if (const auto file = value("--csv=")) csv = *file;
      else if (const auto folder = value("--save=")) save = *folder;
      else if (const auto most = value("--seconds=")) seconds = std::stod(*most);
      else fail<value_error>("fmoe_bench --cuda does not know ", std::string(a));
    }
  }
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The greatest difference of a number, by the greatest number, that an arithmetic may make.
double limit_of(math how) { return how == math::bf16 ? 4e-2 : how == math::tf32 ? 6e-3 : 1e-5; }

struct row {
  double seconds, graph_seconds, roof, error;
  bool same_bits;
};

class gpu_bench {
 public:
  explicit gpu_bench(const gpu_options& options)
      : options_(options),
        start_(now()),
        csv_(options.csv.empty() ? nullptr : std::fopen(options.csv.c_str(), "w")) {
    is_emulated_ = std::string(cuda::gpu_or_emulated()->where()).starts_with("emulated");
    if (is_emulated_) options_.tiny = true;
  }
  gpu_bench(const gpu_bench&) = delete;
  ~gpu_bench() {
    if (csv_ != nullptr) std::fclose(csv_);
  }

  int run() {
    const machine m = cuda::gpu_or_emulated()->machine(dtype::float32);
    std::printf("%s\n", m.name.c_str());
    if (is_emulated_)
      std::printf("There is no GPU: tiny layers on emulated blocks, whose times say nothing.\n");
    std::printf("%-14s %-6s %6s %12s %12s %12s %8s %9s\n", "layer", "math", "tokens", "call us",
                "graph us", "roof us", "of roof", "error");
    write("layer,math,tokens,call_us,graph_us,roof_us,error,same_bits,device\n");
    for (const make_gpu_layer& make : gpu_layers(options_.tiny)) measure(make());
    if (left_out_ != 0) std::printf("%d rows were left out: the time was up\n", left_out_);
    std::printf("%d rows, %d wrong\n", rows_, wrong_);
    return wrong_ == 0 && rows_ != 0 ? 0 : 1;
  }

 private:
  void write(const std::string& line) const {
    if (csv_ == nullptr) return;
    std::fputs(line.c_str(), csv_);
    std::fflush(csv_);
  }

  void measure(const gpu_layer& l) {
    if (l.name.find(options_.only) == l.name.npos) return;
    const auto sizes =
        options_.tiny ? std::vector<extent>{1, 19} : std::vector<extent>{1, 16, 128, 1024, 16384};
    const tensor<float, 2> x = random_rows(sizes.back(), l.width);
    tensor<float, 2> expected(x.shape());
    compile(l, sizes.back())(x, expected);
    if (!options_.save.empty()) {
      const extent some = std::min<extent>(128, sizes.back());
      l.save(options_.save + '/' + l.kind + ".safetensors", first(x, some), first(expected, some));
    }
    for (const math how : {math::exact, math::fp32, math::tf32, math::bf16})
      for (const extent tokens : sizes) {
        if (now() - start_ > options_.seconds) {
          ++left_out_;
          continue;
        }
        ++rows_;
        try {
          print(l, how, tokens, timed(l, how, first(x, tokens), first(expected, tokens)));
        } catch (const std::exception& e) {
          ++wrong_;
          std::printf("%-14s %-6s %6zu FAILED: %s\n", l.name.c_str(), name_of(how), tokens,
                      e.what());
        }
        std::fflush(stdout);
      }
  }

  static tensor<float, 2> first(const tensor<float, 2>& all, extent rows) {
    const extent width = all.shape()[1];
    return {{rows, width}, std::span<const float>(all.data(), rows * width)};
  }

  row timed(const gpu_layer& l, math how, const tensor<float, 2>& x,
            const tensor<float, 2>& expected) const {
    const extent tokens = x.shape()[0];
    constexpr std::size_t workspace = std::size_t{8} << 30;
    const auto gpu = cuda::gpu_or_emulated({.math = how, .workspace = workspace});
    machine without_launches = gpu->machine(dtype::float32);
    without_launches.gpu.launch = 1e-12;
    row made{};
    made.roof = explain(l(x), {.on = gpu, .as = without_launches}).seconds;
    const auto forward = compile(l, tokens, {.on = gpu, .callers = 2});
    const cuda::tensor<float, 2> in(x, gpu);
    cuda::tensor<float, 2> out(expected.shape(), gpu);
    const cuda::stream s(gpu);
    const auto check = [&] {
      const tensor<float, 2> y = out.to_host(s.handle());
      const auto errors = differences(y, expected);
      const auto wrong =
          std::ranges::count_if(errors, [&](double e) { return !(e <= limit_of(how)); });
      const extent may = l.selects && tokens >= 16 ? std::max<extent>(1, tokens / 128) : 0;
      made.error = std::ranges::max(errors);
      made.same_bits = std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)) == 0;
      expects<value_error>(static_cast<extent>(wrong) <= may, wrong, " of ", tokens,
                           " rows are not the CPU's; the worst error is ", made.error);
    };
    forward.on(s)(in, out);
    check();
    made.seconds = time_of([&] { forward.on(s)(in, out); }, s);
    out.copy_from(tensor<float, 2>(expected.shape()), s.handle());
    const cuda::graph graph(gpu, s, [&] { forward.on(s)(in, out); });
    graph.launch(s);
    check();
    made.graph_seconds = time_of([&] { graph.launch(s); }, s);
    return made;
  }

  // Five measurements of about 20 ms each, after one that counts the calls for them.
  double time_of(const auto& call, const cuda::stream& s) const {
    const auto of = [&](int calls) {
      s.synchronize();
      const double begin = now();
      for (int i = 0; i < calls; ++i) call();
      s.synchronize();
      return (now() - begin) / calls;
    };
    if (is_emulated_ || options_.once) return of(1);
    const double once = std::min(of(3), of(3));
    const int calls = std::clamp(static_cast<int>(0.02 / once), 2, 2000);
    std::vector<double> times(5);
    for (double& t : times) t = of(calls);
    return median(times);
  }

  void print(const gpu_layer& l, math how, extent tokens, const row& r) const {
    const double best = std::min(r.seconds, r.graph_seconds);
    char error[32] = "same bits";
    if (!r.same_bits) std::snprintf(error, sizeof error, "%9.1e", r.error);
    std::printf("%-14s %-6s %6zu %12.1f %12.1f %12.1f %8.2f %9s\n", l.name.c_str(), name_of(how),
                tokens, 1e6 * r.seconds, 1e6 * r.graph_seconds, 1e6 * r.roof,
                is_emulated_ ? 0 : r.roof / best, error);
    char line[256];
    std::snprintf(line, sizeof line, "\"%s\",%s,%zu,%.2f,%.2f,%.2f,%.2e,%d,\"%s\"\n",
                  l.name.c_str(), name_of(how), tokens, 1e6 * r.seconds, 1e6 * r.graph_seconds,
                  1e6 * r.roof, r.error, r.same_bits, is_emulated_ ? "emulated" : "GPU");
    write(line);
  }

  gpu_options options_;
  double start_;
  std::FILE* csv_;
  bool is_emulated_ = false;
  int rows_ = 0, wrong_ = 0, left_out_ = 0;
};

const gpu_program on_gpu([](std::span<char*> arguments) {
  return gpu_bench(gpu_options(arguments)).run();
});

}  // namespace
}  // namespace fmoe::bench
