// SPDX-License-Identifier: MIT
#include "gpu_layers.hpp"

#include <fmoe/aoe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>

namespace fmoe::bench {
namespace {

// Random weights with the names that they have in a file.
class named_weights {
 public:
  template <std::size_t Rank>
  parameter<float, Rank> weight(const char* name, const std::array<extent, Rank>& shape,
                                extent fan_in) {
    return kept(name, made_.weight(shape, fan_in));
  }
  parameter<float, 1> bias(const char* name, extent size) { return kept(name, made_.bias(size)); }
  void number(const char* name, double x) { numbers_.emplace(name, std::to_string(x)); }

  // The layer of these weights.
  template <class Forward>
  gpu_layer layer(const std::string& name, const std::string& kind, extent width, bool selects,
                  Forward forward) const {
    const auto save = [arrays = arrays_, numbers = numbers_](const std::string& file, const auto& x,
                                                             const auto& y) {
      auto all = arrays;
      all.emplace("x", x);
      all.emplace("y", y);
      io::safetensors::write(file, all, numbers);
    };
    return {name, kind, width, selects, [forward](const any_rows& x) { return forward(x); }, save};
  }

 private:
  template <std::size_t Rank>
  parameter<float, Rank> kept(const char* name, parameter<float, Rank> w) {
    arrays_.emplace(name, tensor<float, Rank>(w.shape(), std::span(w.data(), w.size())));
    return w;
  }

  parameters<float, float> made_;
  io::arrays_by_name arrays_;
  io::strings_by_name numbers_;
};

gpu_layer make_mxd(const std::string& name, extent i, extent h, extent n, extent active) {
  named_weights w;
  mxd<float> l;
  l.encoder = w.weight("encoder", std::array{i, h}, i);
  l.encoder_bias = w.bias("encoder_bias", h);
  l.gate = w.weight("gate", std::array{i, n}, i);
  l.gate_bias = w.bias("gate_bias", n);
  l.scales = w.weight("scales", std::array{n, i}, 1);
  l.decoder = w.weight("decoder", std::array{h, i}, h);
  l.bias = w.bias("bias", i);
  l.active = active;
  w.number("active", static_cast<double>(active));
  return w.layer(name, "mxd", i, true, l);
}

gpu_layer make_cp(const std::string& name, extent n, extent i, extent r) {
  named_weights w;
  const cp_mumoe<1> l{{.projections = {w.weight("gate", std::array{i, n}, i)}},
                      {},
                      {{w.weight("experts", std::array{n, r}, 1)},
                       w.weight("input", std::array{i, r}, i),
                       w.weight("output", std::array{i, r}, r)}};
  return w.layer(name, "cp", i, false, l);
}

gpu_layer make_tr(const std::string& name, extent n, extent i, extent p, extent q, extent r) {
  named_weights w;
  const tr_mumoe<1> l{{.projections = {w.weight("gate", std::array{i, n}, i)}},
                      {},
                      {{w.weight("experts", std::array{p, n, q}, q)},
                       w.weight("input", std::array{q, i, r}, i),
                       w.weight("output", std::array{r, i, p}, r * p)}};
  return w.layer(name, "tr", i, false, l);
}

struct monet_sizes {
  extent d, units, heads, s, active;
};

monet_router<float> router(named_weights& w, const monet_sizes& of) {
  const tensor<float, 1> zeros({of.heads});
  tensor<float, 1> ones({of.heads});
  std::fill_n(ones.data(), ones.size(), 1.0f);
  const auto keys = [&](const char* name) {
    return w.weight(name, std::array{of.d, of.heads * of.s}, of.d);
  };
  const double share = static_cast<double>(of.active) / static_cast<double>(of.s);
  w.number("heads", static_cast<double>(of.heads));
  w.number("bound", normal_quantile_above(share) * std::sqrt(1 + 1e-5));
  return {keys("keys1"), keys("keys2"), zeros, ones, zeros, ones, of.heads, of.active};
}

gpu_layer make_monet_hd(const std::string& name, const monet_sizes& of) {
  named_weights w;
  const auto r = router(w, of);
  const extent h = of.s * of.units;
  const monet_hd<float> l{w.weight("encoder", std::array{of.d, h}, of.d), w.bias("encoder_bias", h),
                          w.weight("decoder", std::array{h, of.d}, h),
                          w.weight("bias", std::array{of.s, of.d}, 1)};
  return w.layer(name, "monet", of.d, true,
                 [=](const any_rows& x) { return l(x, r.g1(x), r.g2(x)); });
}

gpu_layer make_monet_vd(const std::string& name, const monet_sizes& of) {
  named_weights w;
  const auto r = router(w, of);
  const extent h = of.s * of.units / 2, o = of.d / 2;
  const auto encoder = [&](const char* n) { return w.weight(n, std::array{of.d, h}, of.d); };
  const auto decoder = [&](const char* n) { return w.weight(n, std::array{h, o}, h); };
  const auto bias = [&](const char* n) { return w.weight(n, std::array{of.s, o}, 1); };
  const monet_vd<float> l{encoder("encoder1"),
                          encoder("encoder2"),
                          w.bias("encoder_bias1", h),
                          w.bias("encoder_bias2", h),
                          decoder("decoder11"),
                          decoder("decoder12"),
                          decoder("decoder21"),
                          decoder("decoder22"),
                          bias("bias1"),
                          bias("bias2")};
  return w.layer(name, "monet_vd", of.d, true,
                 [=](const any_rows& x) { return l(x, r.g1(x), r.g2(x)); });
}

gpu_layer make_aoe(const std::string& name, extent d, extent n, extent low, extent wide,
                   extent active) {
  named_weights w;
  aoe<float> l;
  l.down = w.weight("down", std::array{d, n, low}, d);
  l.up = w.weight("up", std::array{n, low, wide}, low);
  l.linear = w.weight("linear", std::array{n, d, wide}, d);
  l.output = w.weight("output", std::array{n, wide, d}, wide);
  l.route.active = active;
  w.number("active", static_cast<double>(active));
  return w.layer(name, "aoe", d, true, l);
}

gpu_layer make_peer(const std::string& name, extent d, extent heads, extent s, extent key,
                    extent active) {
  named_weights w;
  peer<float> l;
  l.queries = w.weight("queries", std::array{d, 2 * heads * key}, d);
  l.keys = w.weight("keys", std::array{heads, s, extent{2}, key}, key);
  l.down = w.weight("down", std::array{s * s, d}, d);
  l.up = w.weight("up", std::array{s * s, d}, active);
  l.active = active;
  w.number("active", static_cast<double>(active));
  return w.layer(name, "peer", d, true, l);
}

}  // namespace

std::vector<make_gpu_layer> gpu_layers(bool tiny) {
  if (tiny) {
    const monet_sizes small{24, 4, 2, 16, 4};
    return {[] { return make_mxd("MxD tiny", 24, 40, 100, 5); },
            [=] { return make_monet_hd("Monet HD tiny", small); },
            [=] { return make_monet_vd("Monet VD tiny", small); },
            [] { return make_aoe("AoE tiny", 24, 5, 8, 20, 2); },
            [] { return make_cp("CP tiny", 9, 24, 20); },
            [] { return make_tr("TR tiny", 9, 24, 3, 4, 20); },
            [] { return make_peer("PEER tiny", 24, 3, 9, 5, 4); }};
  }
  const monet_sizes large{2048, 16, 8, 512, 32};
  return {[] { return make_mxd("MxD GPT-2", 768, 3072, 21'490, 32); },
          [=] { return make_monet_hd("Monet 1.4B HD", large); },
          [=] { return make_monet_vd("Monet 1.4B VD", large); },
          [] { return make_aoe("AoE 2 of 8", 768, 8, 256, 3840, 2); },
          [] { return make_cp("CP", 512, 768, 512); },
          [] { return make_tr("TR", 512, 768, 4, 4, 512); },
          [] { return make_peer("PEER 65,536", 768, 8, 256, 64, 16); }};
}

}  // namespace fmoe::bench
