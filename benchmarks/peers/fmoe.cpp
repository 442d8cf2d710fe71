// SPDX-License-Identifier: MIT
// usage: fmoe_peer THREADS [bf16 [products]|q8 [products]|gradients [sparse]]
//
// The layers by fmoe, with weights of 32, 16 or 8 bits, or with both passes of a step, whose
// gradients of tables may be sparse. Two more
// commands: `roof` gives the FLOPs and bytes of a call and, measured now, the machine's FLOP/s and
// bytes/s; `machine` describes the machine.
#include <map>
#include <string_view>

#include <tbb/task_arena.h>

#include <fmoe/quantize.hpp>

#include "../support/roofline.hpp"
#include "contestant.hpp"
#include "sources.hpp"

namespace fmoe::peers {
namespace {

// A call on the rows that were prepared last, and what it must do.
struct work {
  double flops = 0, weight_bytes = 0, row_bytes = 0;
};

template <class Stored>
class program {
  using T = detail::widened_t<Stored>;  // of the file's numbers in a layer

 public:
  explicit program(extent threads, compile_options how = {}, bool gradients = false)
      : threads_(threads),
        how_(how),
        gradients_(gradients),
        arena_(static_cast<int>(threads)) {}

  int run() {
    return serve(
        [this](const std::string& kind, const io::safetensors& weights, extent tokens) {
          return arena_.execute([&] { return make(kind, weights, tokens); });
        },
        [this](const std::string& command) { return command == "roof" ? roof() : machine_line(); });
  }

 private:
  forward make(const std::string& kind, const io::safetensors& file, extent tokens) {
    forward made;
    with_source<T>(kind, [&]<class Source>(Source) {
      const auto layer = read<Source>(file);
      const auto x = first_rows(file, "x", tokens);
      if constexpr (std::is_same_v<Stored, float>)
        if (gradients_) return made = step<Source>(layer, x, first_rows(file, "dy", tokens));
      const auto kept = stored(layer);
      made = compiled(kept, x);
      count_experts<Source>(kept, x);
      return made;
    });
    return made;
  }

  static auto stored(const auto& layer) {
    if constexpr (detail::is_quantized<Stored>) return quantize<Stored>(layer);
    else return layer;
  }

  static tensor<float, 2> first_rows(const io::safetensors& file, const char* name, extent tokens) {
    const auto all = file.get<float, 2>(name);
    tensor<float, 2> x({tokens, all.shape()[1]});
    std::copy_n(all.data(), x.size(), x.data());
    return x;
  }

  forward compiled(const auto& layer, const tensor<float, 2>& x) {
    const extent tokens = x.shape()[0], width = x.shape()[1];
    const cost_figures c = cost(layer(x)).factorized;
    const double rows = 8 * static_cast<double>(x.size());
    work_ = {c.flops() * static_cast<double>(tokens), c.bytes - rows, rows};
    using call = decltype(compile(layer, tokens));
    const auto run = std::make_shared<call>(compile(layer, tokens, how_));
    return {[this, run, tokens, width](const float* from, float* to) {
      arena_.execute([&] {
        (*run)(borrow(std::span(from, tokens * width), {tokens, width}),
               borrow(std::span(to, tokens * width), {tokens, width}));
      });
    }};
  }

  // Both passes, with all gradients.
  template <class Source>
  forward step(const auto& layer, const tensor<float, 2>& x, const tensor<float, 2>& dy) {
    const extent tokens = x.shape()[0], width = x.shape()[1];
    const auto run = std::make_shared<decltype(compile_gradients(layer, tokens))>(
        compile_gradients(layer, tokens, how_));
    if (how_.sparse_gradients != 0 && run->gradients().sparse.empty()) return {};
    const auto dx = std::make_shared<tensor<float, 2>>(x.shape());
    const cost_figures c = run->cost().both;
    const extent spans = (tokens + run->span() - 1) / run->span();
    work_ = {c.flops() * static_cast<double>(tokens), c.bytes * static_cast<double>(spans), 0};
    const auto write_gradients = [run, dx](std::ostream& out) {
      write(out, *dx);
      std::map<std::string, std::function<void()>> by_name;
      typename Source::layer whole = run->gradients();
      for (const auto& g : run->gradients().sparse)
        for (const auto& p : detail::released_parameters(whole))
          if (p.name.name == g.name()) p.parameter.assign(detail::any_of(g.template dense<2>()));
      Source::arrays(whole, [&](const char* name, const auto& array) {
        by_name[name] = [&] { write(out, array); };
      });
      for (const auto& [name, write_one] : by_name) write_one();
    };
    return {[this, run, dx, dy, tokens, width](const float* from, float* to) {
              arena_.execute([&] {
                (*run)(borrow(std::span(from, tokens * width), {tokens, width}), dy,
                       borrow(std::span(to, tokens * width), {tokens, width}), *dx);
              });
            },
            write_gradients};
  }

  static void write(std::ostream& out, const auto& array) {
    out.write(reinterpret_cast<const char*>(array.data()),
              static_cast<std::streamsize>(array.size() * sizeof(float)));
  }

  // Counts the weights of the experts that the rows use, where the others are not read.
  template <class Source>
  void count_experts(const auto& layer, const tensor<float, 2>& x) {
    if constexpr (requires { Source::router; }) {
      const auto chosen = evaluate(layer.coefficients(x));
      const auto [tokens, n] = chosen.shape();
      extent used = 0;
      for (extent e = 0; e < n; ++e) {
        bool any = false;
        for (extent t = 0; t < tokens; ++t) any = any || chosen(t, e) != 0;
        used += any;
      }
      double always = 0, experts = 0;
      Source::arrays(layer, [&]<class Array>(std::string_view name, const Array& array) {
        using number = typename Array::value_type;
        const double each = detail::is_quantized<number> ? 34.0 / 32 : sizeof(number);
        (name == Source::router ? always : experts) += each * static_cast<double>(array.size());
      });
      work_.weight_bytes = always + experts / static_cast<double>(n) * static_cast<double>(used);
    }
  }

  std::string roof() const {
    const bench::read_buffer buffer(work_.weight_bytes, threads_);
    std::ostringstream line;
    line << work_.flops << ' ' << work_.weight_bytes + work_.row_bytes << ' '
         << bench::peak_flops(threads_) << ' ' << buffer.bandwidth();
    return line.str();
  }

  // The name, caches and rates of the machine.
  static std::string machine_line() {
    const machine& m = cpu::this_machine<cpu::native_arch>();
    std::string name = "unknown";
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("model name")) name = line.substr(line.find(':') + 2);
    std::ostringstream line;
    line << std::fixed << std::setprecision(0) << name << " (" << cpu::native_arch::name() << "), "
         << m.threads << " cores, L2 " << (m.l2 >> 10) << " KiB, L3 " << (m.l3 >> 20)
         << " MiB; one core " << 1e-9 * m.one.flops << " GFLOP/s, reads of L3 " << 1e-9 * m.one.l3
         << " GB/s, of memory " << 1e-9 * m.one.memory << "; all cores " << 1e-9 * m.every.flops
         << " GFLOP/s, " << 1e-9 * m.every.l3 << " and " << 1e-9 * m.every.memory << " GB/s";
    return line.str();
  }

  extent threads_;
  compile_options how_;
  bool gradients_;
  tbb::task_arena arena_;
  work work_;
};

}  // namespace
}  // namespace fmoe::peers

int main(int count, char** arguments) {
  using namespace fmoe::peers;
  const auto threads = std::stoull(arguments[1]);
  const std::string_view variant = count > 2 ? arguments[2] : "";
  const std::string_view how = count > 3 ? arguments[3] : "";
  if (variant == "bf16")
    return program<fmoe::bf16>(threads, {.bf16_products = how == "products"}).run();
  if (variant == "q8")
    return program<fmoe::q8>(threads, {.int8_products = how == "products"}).run();
  const std::size_t sparse = how == "sparse" ? fmoe::all : 0;
  return program<float>(threads, {.sparse_gradients = sparse}, variant == "gradients").run();
}
