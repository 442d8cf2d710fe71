// SPDX-License-Identifier: MIT
// This program prints the cost tables of the papers from fmoe's layers: the numbers that a layer
// stores and the multiply-adds that a token takes, factorized, and naive, with every expert
// materialised and taken. The weights have shapes but no elements, which cost does not need.
#include <cstdio>
#include <memory>

#include <fmoe/aoe.hpp>
#include <fmoe/cost.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

auto w(auto... n) {
  const std::array shape{static_cast<std::size_t>(n)...};
  return parameter<float, sizeof...(n)>(
      tensor<float, sizeof...(n)>(shape, std::make_shared<storage>(std::size_t{0})));
}
auto x(auto... n) { return tensor<float, sizeof...(n)>(w(n...)); }

void title(const char* table) {
  std::printf("%-36s %15s %15s %8s\n", table, "multiply-adds", "naive", "ratio");
}
void row(const std::string& name, const cost_report& c, double by_hand = 0,
         const std::string& note = "") {
  const double work = c.factorized.multiply_adds,
               naive = by_hand != 0 ? by_hand : c.naive_multiply_adds;
  std::printf(" %-18s %15.0f %15.0f %15.0f %8.1f%s\n", name.c_str(), c.factorized.parameters, work,
              naive, naive / work, note.c_str());
}

// CP of rank 512 and a tensor ring of ranks 4 and 512, with `n` experts in each level. Table 8 has
// no bias and makes W in every call.
void mumoe_rows(std::size_t o, std::size_t bias, auto... n) {
  constexpr std::size_t levels = sizeof...(n);
  std::string name;
  ((name += (name.empty() ? " " : ",") + std::to_string(n)), ...);
  const expert_gate<levels> gate{.projections = {w(768, n)...}};
  const cp_mumoe<levels> cp{gate, {}, {{w(n, 512)...}, w(768 + bias, 512), w(o, 512)}};
  const tr_mumoe<levels> tr{gate, {}, {{w(4, n, 4)...}, w(4, 768 + bias, 512), w(512, o, 4)}};
  for (const auto& [kind, c] :
       {std::pair("CP", cost(cp(x(1, 768)))), std::pair("TR", cost(tr(x(1, 768))))}) {
    row(kind + name, c);
    const double weight = (n * ... * (768. * static_cast<double>(o)));
    if (bias == 0) std::printf(" making and using W %30.0f\n", c.naive.once + weight);
  }
}

void mxd_row(const char* name, std::size_t i, std::size_t h, std::size_t n, bool glu) {
  mxd<> layer{w(i, h), w(h), {}, {}, w(i, n), w(n), w(n, i), w(h, i), {}, w(i)};
  if (glu) {
    layer.linear = w(i, h);
    layer.linear_bias = w(h);
  }
  row(name, cost(layer(x(1, i))));
}

// The naive form has N = s^2 experts of m units and a bias each, and a router with a score for each
// head and expert.
void monet_rows(const std::string& name, std::size_t d, std::size_t m, std::size_t p) {
  const std::size_t s = 512, n = s * s, h = s * m / 2, o = d / 2;
  const auto in = x(1, d), a = x(1, n);
  const auto all =
      einsum<"tn,tnm,nmd->td">(a, squared_relu(einsum<"td,ndm->tnm">(in, w(n, d, m))), w(n, m, d));
  const double naive = cost(all + einsum<"tn,nd->td">(a, w(n, d))).naive_multiply_adds;
  const monet_hd<> hd{w(d, s * m), w(s * m), w(s * m, d), w(s, d)};
  const monet_vd<> vd{w(d, h), w(d, h), w(h),    w(h),    w(h, o),
                      w(h, o), w(h, o), w(h, o), w(s, o), w(s, o)};
  const monet_router<> router{w(d, p * s), w(d, p * s), {}, {}, {}, {}, p};
  row(name + " HD", cost(hd(in, x(1, p, s), x(1, p, s))), naive);
  row(name + " VD", cost(vd(in, x(1, p, s), x(1, p, s))), naive);
  row(name + " router", cost(router(in)), static_cast<double>(d * p * n));
}

int main() {
  title("muMoE, Table 8 parameters");
  mumoe_rows(768, 0, 512);
  title("muMoE, Table 10 parameters");
  for (const int n : {128, 256, 512, 1024, 2048, 8192}) mumoe_rows(1000, 1, n);
  for (const int m : {2, 4}) mumoe_rows(1000, 1, 128, m);
  for (const int m : {2, 4}) {
    mumoe_rows(1000, 1, 128, m, m);
    mumoe_rows(1000, 1, 128, m, m, m);
  }
  title("MxD, Table 2 parameters");
  mxd_row("GPT-2", 768, 3072, 21490, false);
  mxd_row("Pythia-410m", 1024, 4096, 28658, false);
  mxd_row("Pythia-1.4b", 2048, 8192, 57330, false);
  mxd_row("Llama-3.2-3B", 3072, 8202, 86015, true);
  title("Monet, Tables 1, 6 parameters");
  monet_rows("850M", 1536, 12, 6);
  monet_rows("1.4B", 2048, 16, 8);
  monet_rows("4.1B", 3072, 24, 12);
  title("AoE, Eq. 5 parameters");
  // The layer has as many parameters as a sparse mixture of 8 experts of 3072 units, 2 of which are
  // chosen; its work is divided by the work of that mixture.
  const std::size_t d = 768, n = 8, ffn = 3072;
  const cost_report base =
      cost(moe<>{w(d, n), w(n, d, ffn), {}, {}, w(n, d, ffn), w(n, ffn, d), {}}(x(1, d)));
  row("sparse MoE 3072", base);
  for (const std::size_t l : std::array<std::size_t, 4>{64, 128, 256, 512}) {
    const std::size_t u = (3 * d * ffn - l * d + l + 2 * d - 1) / (l + 2 * d);  // Eq. 5, rounded up
    const aoe<> layer{w(d, n, l), w(n, l, u), w(n, d, u), w(n, u, d), {}, row_norm::l2, {}};
    const cost_report c = cost(layer(x(1, d)));
    row("AoE " + std::to_string(l) + ',' + std::to_string(u), c, 0,
        " " + std::to_string(c.factorized.multiply_adds / base.factorized.multiply_adds));
  }
}
