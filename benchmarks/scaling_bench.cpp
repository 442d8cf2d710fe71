// SPDX-License-Identifier: MIT
// Compares naive and factorized layers as they grow: muMoE (CP), MxD and Monet by their number N of
// experts, CP by its rank R and by its number E of levels. The naive form is measured, and the
// result checked, where its weights fit in memory.
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

constexpr extent fits = extent{5} << 26;  // elements, 1.3 GB

struct scale {
  extent width, hidden, rank, units,
      heads;  // input and output; of MxD; of CP; of a half of Monet's expert; its routers
};

// Each level has `each` experts.
template <extent Levels>
struct scaled_cp : model {
  cp_mumoe<Levels> layer;
  extent width, rank, experts = 1;

  scaled_cp(const scale& s, extent each, extent r) : width(s.width), rank(r) {
    parameters<float, float> p;
    for (extent e = 0; e < Levels; ++e) {
      layer.gate.projections[e] = p.weight(std::array{width, each}, width);
      layer.experts.experts[e] = p.weight(std::array{each, rank}, 1);
      experts *= each;
    }
    layer.experts.input = p.weight(std::array{width, rank}, width);
    layer.experts.output = p.weight(std::array{width, rank}, rank);
  }

  contest on(extent tokens) const override {
    const auto x = random_rows(tokens, width);
    contest c = contest_of(layer, layer, x, width, sizeof(float));
    if (experts * width * width <= fits) c.naive = [x, this] { return compiled_form(dense(), x); };
    return c;
  }

  dense_mumoe<Levels> dense() const {
    std::array<extent, Levels + 2> shape;
    shape.fill(width);
    for (extent e = 0; e < Levels; ++e) shape[e] = layer.experts.experts[e].shape()[0];
    tensor<float, Levels + 2> w(shape);
    for (extent n = 0; n < experts; ++n) {
      row_vector scales = row_vector::Ones(index(rank));
      for (extent e = Levels, rest = n; e-- > 0; rest /= shape[e])
        scales =
            scales.cwiseProduct(as_matrix(layer.experts.experts[e]).row(index(rest % shape[e])));
      const matrix scaled = as_matrix(layer.experts.input) * scales.asDiagonal();
      map(w.data() + n * width * width, index(width), index(width)).noalias() =
          scaled * as_matrix(layer.experts.output).transpose();
    }
    return {layer.gate, {}, {w}};
  }
};

struct scaled_mxd : model {
  mxd<> layer;

  scaled_mxd(const scale& s, extent n) {
    parameters<float, float> p;
    layer.encoder = p.weight(std::array{s.width, s.hidden}, s.width);
    layer.gate = p.weight(std::array{s.width, n}, s.width);
    layer.scales = p.weight(std::array{n, s.width}, 1);
    layer.decoder = p.weight(std::array{s.hidden, s.width}, s.hidden);
    layer.active = std::min<extent>(n, 32);
  }

  contest on(extent tokens) const override {
    const auto [hidden, width] = layer.decoder.shape();
    const auto x = random_rows(tokens, width);
    contest c = contest_of(layer, layer, x, width, sizeof(float));
    c.selects = true;
    if (layer.scales.shape()[0] * hidden * width <= fits)
      c.naive = [x, m = layer] { return compiled_form(m, x, {.naive = true}); };
    return c;
  }
};

// Every pair of halves is an expert of its own.
struct naive_monet {
  monet_router<> router;
  parameter<float, 4> encoder;  // i j d m
  parameter<float, 4> decoder;  // i j m d
  parameter<float, 3> bias;     // i j d

  auto operator()(const operand_of<2> auto& x) const {
    const auto a = einsum<"tpi,tpj->tij">(router.g1(x), router.g2(x));
    const auto hidden = squared_relu(einsum<"td,ijdm->tijm">(x, encoder));
    return einsum<"tij,tijm,ijmd->td">(a, hidden, decoder) + einsum<"tij,ijd->td">(a, bias);
  }
};

struct scaled_monet : model {
  monet_router<> router;
  monet_hd<> layer;
  extent halves;

  scaled_monet(const scale& s, extent halves_) : halves(halves_) {
    parameters<float, float> p;
    const auto keys = [&] { return p.weight(std::array{s.width, s.heads * halves}, s.width); };
    const extent hidden = halves * s.units;
    router = {keys(), keys(), {}, {}, {}, {}, s.heads, halves};
    layer = {p.weight(std::array{s.width, hidden}, s.width),
             {},
             p.weight(std::array{hidden, s.width}, hidden),
             p.weight(std::array{halves, s.width}, 1)};
  }

  contest on(extent tokens) const override {
    const auto [hidden, width] = layer.decoder.shape();
    const auto x = random_rows(tokens, width);
    const auto routed = [r = router, l = layer](const operand_of<2> auto& z) {
      return l(z, r.g1(z), r.g2(z));
    };
    contest c = contest_of(routed, routed, x, width, sizeof(float));
    const extent units = hidden / halves, elements = halves * halves * width * (2 * units + 1);
    c.naive_flops =
        2 * static_cast<double>(tokens * (elements + 2 * width * router.heads * halves));
    if (elements <= fits) c.naive = [x, this] { return compiled_form(naive(), x); };
    return c;
  }

  naive_monet naive() const {
    const auto [hidden, width] = layer.decoder.shape();
    const extent units = hidden / halves;
    tensor<float, 4> u({halves, halves, width, units}), v({halves, halves, units, width});
    tensor<float, 3> b({halves, halves, width});
    for (extent i = 0; i < halves; ++i)
      for (extent j = 0; j < halves; ++j) {
        map(&u(i, j, 0, 0), index(width), index(units)) =
            as_matrix(layer.encoder).middleCols(index(i * units), index(units));
        map(&v(i, j, 0, 0), index(units), index(width)) =
            as_matrix(layer.decoder).middleRows(index(j * units), index(units));
        std::copy_n(&layer.bias(j, 0), width, &b(i, j, 0));
      }
    return {router, u, v, b};
  }
};

template <class Model>
void add_scaled(const std::string& name, extent value, auto... sizes) {
  const auto make = [=] { return std::make_unique<Model>(sizes...); };
  add_rows("scaling/" + name + ':' + std::to_string(value), make, {16}, {1});
}

const suite scaling_rows([](bool tiny) {
  const scale s = tiny ? scale{24, 40, 12, 3, 2} : scale{768, 3072, 512, 12, 6};
  const extent largest = tiny ? 32 : 262'144;
  for (extent n = 2; n <= largest; n *= n == 32'768 ? 8 : 4) {
    add_scaled<scaled_cp<1>>("mumoe_n", n, s, n, s.rank);
    add_scaled<scaled_mxd>("mxd_n", n, s, n);
  }
  for (extent halves = 2; halves * halves <= largest; halves *= 2)
    add_scaled<scaled_monet>("monet_n", halves * halves, s, halves);
  for (const extent r : std::array<extent, 5>{8, 32, 128, 512, 2048})
    add_scaled<scaled_cp<1>>("mumoe_r", r, s, extent{128}, r);
  add_scaled<scaled_cp<1>>("mumoe_e", 1, s, extent{8}, s.rank);
  add_scaled<scaled_cp<2>>("mumoe_e", 2, s, extent{8}, s.rank);
  add_scaled<scaled_cp<3>>("mumoe_e", 3, s, extent{8}, s.rank);
  add_scaled<scaled_cp<4>>("mumoe_e", 4, s, extent{8}, s.rank);
});

}  // namespace
}  // namespace fmoe::bench
