// SPDX-License-Identifier: MIT
// Monet at the sizes of the released 850M and 1.4B models, horizontal and vertical; each layer has
// the released router. Its 262,144 experts do not fit in memory one by one, so there is no naive
// form.
#include <fmoe/monet.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

struct monet_size {
  const char* name;
  extent d, m, p;
  extent s = 512, active = 32;
};

template <class T, class Stored>
monet_router<T> make_router(const monet_size& s, parameters<T, Stored>& p) {
  const tensor<T, 1> zeros({s.p});
  tensor<T, 1> ones({s.p});
  std::fill_n(ones.data(), ones.size(), convert<T>(1.0f));
  const auto keys = [&] { return p.weight(std::array{s.d, s.p * s.s}, s.d); };
  return {keys(), keys(), zeros, ones, zeros, ones, s.p, s.active};
}

// A router and a layer, as one function of x.
template <class T, template <class> class Layer>
struct routed {
  monet_router<T> router;
  Layer<T> layer;

  auto operator()(const operand_of<2> auto& x) const {
    return layer(x, router.g1(x), router.g2(x));
  }
};

template <template <class> class Layer>
auto in_8_bits(const routed<float, Layer>& r) {
  const auto [router, plain_router] = bench::in_8_bits(r.router);
  const auto [layer, plain_layer] = bench::in_8_bits(r.layer);
  return std::pair(routed<q8, Layer>{router, layer},
                   routed<float, Layer>{plain_router, plain_layer});
}

template <class T, class Stored>
routed<T, monet_hd> make_hd(const monet_size& s, parameters<T, Stored> p) {
  const extent h = s.s * s.m;
  const auto router = make_router(s, p);
  return {router,
          {p.weight(std::array{s.d, h}, s.d), p.bias(h), p.weight(std::array{h, s.d}, h),
           p.weight(std::array{s.s, s.d}, 1)}};
}
template <class T, class Stored>
routed<T, monet_vd> make_vd(const monet_size& s, parameters<T, Stored> p) {
  const extent h = s.s * s.m / 2, o = s.d / 2;
  const auto router = make_router(s, p);
  const auto encoder = [&] { return p.weight(std::array{s.d, h}, s.d); };
  const auto decoder = [&] { return p.weight(std::array{h, o}, h); };
  const auto bias = [&] { return p.weight(std::array{s.s, o}, 1); };
  return {router,
          {encoder(), encoder(), p.bias(h), p.bias(h), decoder(), decoder(), decoder(), decoder(),
           bias(), bias()}};
}

// [t, p s]: for each head the softmax over the scores that reach the bound, or over the greatest
// one.
matrix gates(const const_map& x, const parameter<float, 2>& keys, const monet_size& s) {
  const auto bound = static_cast<float>(
      normal_quantile_above(static_cast<double>(s.active) / static_cast<double>(s.s)) *
      std::sqrt(1 + 1e-5));
  matrix g = x * as_matrix(keys);
  map heads(g.data(), g.rows() * index(s.p), index(s.s));
  for (Eigen::Index i = 0; i < heads.rows(); ++i) {
    auto row = heads.row(i).array();
    const float greatest = row.maxCoeff();
    row = (row >= std::min(greatest, bound)).select((row - greatest).exp(), 0.0f);
    row /= row.sum();
  }
  return g;
}

matrix hidden(const const_map& x, const parameter<float, 2>& encoder,
              const parameter<float, 1>& bias) {
  matrix u = (x * as_matrix(encoder)).rowwise() + as_row(bias);
  return u.cwiseMax(0.0f).cwiseAbs2();
}

// For each token the sum over heads, i of g[p, j] other[p, i] u[i, m], which is computed from p m
// numbers, and the sum over p, i of g[p, j] other[p, i].
struct flow {
  matrix mixed, mass;

  flow(const matrix& u, const matrix& g, const matrix& other, const monet_size& s)
      : mixed(u.rows(), u.cols()),
        mass(u.rows(), index(s.s)) {
    const Eigen::Index m = u.cols() / index(s.s);
    for (Eigen::Index t = 0; t < u.rows(); ++t) {
      const const_map units(u.row(t).data(), index(s.s), m);
      const const_map to(g.row(t).data(), index(s.p), index(s.s)),
          from(other.row(t).data(), index(s.p), index(s.s));
      const matrix by_head = from * units;
      map(mixed.row(t).data(), index(s.s), m).noalias() = to.transpose() * by_head;
      const row_vector sums = from.rowwise().sum().transpose();
      mass.row(t).noalias() = sums * to;
    }
  }
};

void by_eigen(const routed<float, monet_hd>& r, const monet_size& s, const const_map& x, map y) {
  const matrix g1 = gates(x, r.router.keys1, s), g2 = gates(x, r.router.keys2, s);
  const flow f(hidden(x, r.layer.encoder, r.layer.encoder_bias), g2, g1, s);
  y.noalias() = f.mixed * as_matrix(r.layer.decoder);
  y.noalias() += f.mass * as_matrix(r.layer.bias);
}

void by_eigen(const routed<float, monet_vd>& r, const monet_size& s, const const_map& x, map y) {
  const auto& l = r.layer;
  const matrix g1 = gates(x, r.router.keys1, s), g2 = gates(x, r.router.keys2, s);
  matrix u1 = hidden(x, l.encoder1, l.encoder_bias1), u2 = hidden(x, l.encoder2, l.encoder_bias2);
  const flow crossed1(u2, g1, g2, s), crossed2(u1, g2, g1, s);
  const auto half = [&](auto part, matrix& u, const flow& f, const auto& straight,
                        const auto& crossed, const auto& bias) {
    const Eigen::Index m = u.cols() / index(s.s);
    for (Eigen::Index t = 0; t < u.rows(); ++t) {
      map units(u.row(t).data(), index(s.s), m);
      units.array().colwise() *= f.mass.row(t).transpose().array();
    }
    part.noalias() = u * as_matrix(straight);
    part.noalias() += f.mixed * as_matrix(crossed);
    part.noalias() += f.mass * as_matrix(bias);
  };
  half(y.leftCols(y.cols() / 2), u1, crossed1, l.decoder11, l.decoder12, l.bias1);
  half(y.rightCols(y.cols() / 2), u2, crossed2, l.decoder22, l.decoder21, l.bias2);
}

void add_products(contest& c, const std::initializer_list<const parameter<float, 2>*> weights) {
  for (const auto* w : weights)
    c.products.push_back({c.tokens, w->shape()[0], w->shape()[1], w->data()});
}
void add_products(contest& c, const monet_hd<>& l) {
  add_products(c, {&l.encoder, &l.decoder, &l.bias});
}
void add_products(contest& c, const monet_vd<>& l) {
  add_products(c, {&l.encoder1, &l.encoder2, &l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22,
                   &l.bias1, &l.bias2});
}

template <class T, template <class> class Layer>
struct monet_model : model {
  monet_size size;
  std::pair<routed<T, Layer>, routed<float, Layer>> layers;

  monet_model(const monet_size& s, auto made) : size(s), layers(std::move(made)) {}

  contest on(extent tokens) const override {
    const auto& [layer, plain] = layers;
    const auto x = random_rows(tokens, size.d);
    contest c = contest_of(layer, plain, x, size.d, bytes_of_weight<T>);
    // The naive form has two matrices and a bias for every expert, and a router score for each head
    // and expert.
    const auto d = static_cast<double>(size.d), experts = static_cast<double>(size.s * size.s);
    c.naive_flops = 2 * static_cast<double>(tokens) * experts * d *
                    static_cast<double>(2 * size.m + 1 + size.p);
    c.selects = true;
    c.by_eigen = [x, r = plain, s = size](extent first, extent count, auto& y) {
      by_eigen(r, s, rows_of(x, first, count), rows_of(y, first, count));
    };
    add_products(c, {&plain.router.keys1, &plain.router.keys2});
    add_products(c, plain.layer);
    return c;
  }
};

template <class T>
struct hd_model : monet_model<T, monet_hd> {
  explicit hd_model(const monet_size& s)
      : monet_model<T, monet_hd>(s, layer_and_plain<T>([&](auto p) { return make_hd(s, p); })) {}
};
template <class T>
struct vd_model : monet_model<T, monet_vd> {
  explicit vd_model(const monet_size& s)
      : monet_model<T, monet_vd>(s, layer_and_plain<T>([&](auto p) { return make_vd(s, p); })) {}
};

const suite monet_rows([](bool tiny) {
  if (tiny) {
    add_sizes<hd_model>("monet", monet_size{"tiny_hd", 24, 4, 3, 20, 5});
    add_sizes<vd_model>("monet", monet_size{"tiny_vd", 24, 4, 3, 20, 5});
    return;
  }
  add_sizes<hd_model>("monet", monet_size{"850m_hd", 1536, 12, 6});
  add_sizes<vd_model>("monet", monet_size{"850m_vd", 1536, 12, 6});
  add_sizes<hd_model>("monet", monet_size{"1.4b_hd", 2048, 16, 8});
  add_sizes<vd_model>("monet", monet_size{"1.4b_vd", 2048, 16, 8});
});

}  // namespace
}  // namespace fmoe::bench
