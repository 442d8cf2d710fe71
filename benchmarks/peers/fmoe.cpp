// SPDX-License-Identifier: MIT
// usage: fmoe_peer THREADS [bf16|q8]
//
// The layers by fmoe, with weights of 32, 16 or 8 bits. Two more commands: `roof` gives the FLOPs
// and bytes of a call and, measured now, the machine's FLOP/s and bytes/s; `machine` describes the
// machine.
#include <string_view>

#include <tbb/task_arena.h>

#include <fmoe/fmoe.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/quantize.hpp>

#include "../support/roofline.hpp"
#include "contestant.hpp"

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
  explicit program(extent threads) : threads_(threads), arena_(static_cast<int>(threads)) {}

  int run() {
    return serve(
        [this](const std::string& kind, const io::safetensors& weights, extent tokens) {
          return arena_.execute([&] { return make(kind, weights, tokens); });
        },
        [this](const std::string& command) { return command == "roof" ? roof() : machine_line(); });
  }

 private:
  forward make(const std::string& kind, const io::safetensors& file, extent tokens) {
    const auto x = first_rows(file, tokens);
    const auto get = [&]<extent Rank>(const char* name) {
      return file.get<T, Rank>(name, io::narrowing::allow);
    };
    const auto vector = [&](const char* name) { return get.template operator()<1>(name); };
    const auto matrix = [&](const char* name) { return get.template operator()<2>(name); };
    const auto cube = [&](const char* name) { return get.template operator()<3>(name); };
    const auto number = [&](const char* name) {
      return static_cast<extent>(std::stoull(file.metadata().at(name)));
    };
    if (kind == "mxd") {
      mxd<T> m;
      m.encoder = matrix("encoder");
      m.encoder_bias = vector("encoder_bias");
      m.gate = matrix("gate");
      m.gate_bias = vector("gate_bias");
      m.scales = matrix("scales");
      m.decoder = matrix("decoder");
      m.bias = vector("bias");
      m.active = number("active");
      return compiled(stored(m), x);
    }
    if (kind == "cp")
      return compiled(
          stored(cp_mumoe<1, T>{{.projections = {matrix("gate")}},
                                {},
                                {{matrix("experts")}, matrix("input"), matrix("output")}}),
          x);
    if (kind == "tr")
      return compiled(stored(tr_mumoe<1, T>{{.projections = {matrix("gate")}},
                                            {},
                                            {{cube("experts")}, cube("input"), cube("output")}}),
                      x);
    if (kind == "monet") {
      const extent heads = number("heads");
      const tensor<T, 1> zeros({heads});
      tensor<T, 1> ones({heads});
      std::fill_n(ones.data(), heads, detail::convert<T>(1.0f));
      const auto router = stored(monet_router<T>{matrix("keys1"), matrix("keys2"), zeros, ones,
                                                 zeros, ones, heads, number("active")});
      const auto layer = stored(monet_hd<T>{matrix("encoder"), vector("encoder_bias"),
                                            matrix("decoder"), matrix("bias")});
      return compiled(
          [=](const auto& rows) { return layer(rows, router.g1(rows), router.g2(rows)); }, x);
    }
    if (kind == "aoe") {
      aoe<T> m;
      m.down = cube("down");
      m.up = cube("up");
      m.linear = cube("linear");
      m.output = cube("output");
      m.route.active = number("active");
      forward f = compiled(stored(m), x);
      count_experts(m, x, m.down.size(), m.up.size() + m.linear.size() + m.output.size());
      return f;
    }
    if (kind == "moe") {
      moe<T> m;
      m.router = matrix("router");
      m.activated = cube("activated");
      m.linear = cube("linear");
      m.output = cube("output");
      m.route.active = number("active");
      forward f = compiled(stored(m), x);
      count_experts(m, x, m.router.size(), m.activated.size() + m.linear.size() + m.output.size());
      return f;
    }
    if (kind == "peer") {
      peer<T> m;
      m.queries = matrix("queries");
      m.keys = get.template operator()<4>("keys");
      m.down = matrix("down");
      m.up = matrix("up");
      m.active = number("active");
      return compiled(stored(m), x);
    }
    return {};
  }

  static auto stored(const auto& layer) {
    if constexpr (detail::is_quantized<Stored>) return quantize<Stored>(layer);
    else return layer;
  }

  static tensor<float, 2> first_rows(const io::safetensors& file, extent tokens) {
    const auto all = file.get<float, 2>("x");
    tensor<float, 2> x({tokens, all.shape()[1]});
    std::copy_n(all.data(), x.size(), x.data());
    return x;
  }

  forward compiled(const auto& layer, const tensor<float, 2>& x) {
    const auto [tokens, width] = x.shape();
    const cost_figures c = cost(layer(x)).factorized;
    const double rows = 8 * static_cast<double>(x.size());
    work_ = {c.flops() * static_cast<double>(tokens), c.bytes - rows, rows};
    using call = decltype(compile(layer, tokens));
    const auto run = std::make_shared<call>(compile(layer, tokens));
    return [this, run, tokens, width](const float* from, float* to) {
      arena_.execute([&] {
        (*run)(borrow(std::span(from, tokens * width), {tokens, width}),
               borrow(std::span(to, tokens * width), {tokens, width}));
      });
    };
  }

  // Sets the bytes of the weights: some numbers that each call reads, and those of the experts that
  // the rows use.
  void count_experts(const auto& layer, const tensor<float, 2>& x, extent always, extent experts) {
    const auto chosen = evaluate(layer.coefficients(x));
    const auto [tokens, n] = chosen.shape();
    extent used = 0;
    for (extent e = 0; e < n; ++e) {
      bool any = false;
      for (extent t = 0; t < tokens; ++t) any = any || chosen(t, e) != 0;
      used += any;
    }
    const double each = detail::is_quantized<Stored> ? 34.0 / 32 : sizeof(T);
    work_.weight_bytes = each * static_cast<double>(always + experts / n * used);
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
  tbb::task_arena arena_;
  work work_;
};

}  // namespace
}  // namespace fmoe::peers

int main(int count, char** arguments) {
  const auto threads = std::stoull(arguments[1]);
  if (count > 2 && std::string_view(arguments[2]) == "bf16")
    return fmoe::peers::program<fmoe::bf16>(threads).run();
  if (count > 2 && std::string_view(arguments[2]) == "q8")
    return fmoe::peers::program<fmoe::q8>(threads).run();
  return fmoe::peers::program<float>(threads).run();
}
