// SPDX-License-Identifier: MIT
// muMoE at the size of the paper's Table 8: CP of rank 512, and a tensor ring of ranks 4, 4 and
// 512. The naive form holds W [n, i, o].
#include <optional>

#include <fmoe/mumoe.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

struct mumoe_size {
  const char* name;
  extent n, i, o;
  extent ring, r;
};

template <class T, class Stored>
auto make_cp(const mumoe_size& s, parameters<T, Stored> p) {
  return cp_mumoe<1, T>{{.projections = {p.weight(std::array{s.i, s.n}, s.i)}},
                        {},
                        {{p.weight(std::array{s.n, s.r}, 1)},
                         p.weight(std::array{s.i, s.r}, s.i),
                         p.weight(std::array{s.o, s.r}, s.r)}};
}
template <class T, class Stored>
auto make_tr(const mumoe_size& s, parameters<T, Stored> p) {
  return tr_mumoe<1, T>{{.projections = {p.weight(std::array{s.i, s.n}, s.i)}},
                        {},
                        {{p.weight(std::array{s.ring, s.n, s.ring}, s.ring)},
                         p.weight(std::array{s.ring, s.i, s.r}, s.i),
                         p.weight(std::array{s.r, s.o, s.ring}, s.ring * s.r)}};
}

// Returns entmax with alpha 1.5 of the layer norm: p = (z - tau)^2 where z > tau; z are the halved
// scores, and Newton's steps find tau from below.
matrix coefficients(const expert_gate<1>& gate, const const_map& x) {
  matrix a = x * as_matrix(gate.projections[0]);
  for (Eigen::Index t = 0; t < a.rows(); ++t) {
    auto row = a.row(t).array();
    row -= row.mean();
    row *= 0.5f / std::sqrt(row.square().mean() + 1e-5f);
    row -= row.maxCoeff();
    float tau = -1;
    for (int step = 0; step < 20; ++step) {
      const Eigen::ArrayXf above = (row - tau).max(0.0f);
      const float move = (above.square().sum() - 1) / (2 * above.sum());
      tau += move;
      if (move < 1e-7f) break;
    }
    row = (row - tau).max(0.0f).square();
  }
  return a;
}

// Returns t with its axes A, B and C in this order: each weight is brought into the order of its
// product once.
template <extent A, extent B, extent C>
tensor<float, 3> permuted(const tensor<float, 3>& t) {
  const auto& s = t.shape();
  tensor<float, 3> result({s[A], s[B], s[C]});
  std::array<extent, 3> at;
  for (at[0] = 0; at[0] < s[0]; ++at[0])
    for (at[1] = 0; at[1] < s[1]; ++at[1])
      for (at[2] = 0; at[2] < s[2]; ++at[2]) result(at[A], at[B], at[C]) = t(at[0], at[1], at[2]);
  return result;
}

struct cp_by_eigen {
  const cp_mumoe<1> m;

  explicit cp_by_eigen(cp_mumoe<1> layer) : m(std::move(layer)) {}

  void operator()(const const_map& x, map y) const {
    const matrix mixed = coefficients(m.gate, x) * as_matrix(m.experts.experts[0]);
    const matrix z = x * as_matrix(m.experts.input);
    y.noalias() = mixed.cwiseProduct(z) * as_matrix(m.experts.output).transpose();
  }

  void expert(extent n, map w) const {
    const matrix scaled =
        as_matrix(m.experts.input) * as_matrix(m.experts.experts[0]).row(index(n)).asDiagonal();
    w.noalias() = scaled * as_matrix(m.experts.output).transpose();
  }

  std::vector<product> products(extent tokens) const {
    const auto& [u, v, w] = m.experts;
    const extent n = u[0].shape()[0], r = v.shape()[1];
    return {{tokens, v.shape()[0], n, m.gate.projections[0].data()},
            {tokens, n, r, u[0].data()},
            {tokens, v.shape()[0], r, v.data()},
            {tokens, r, w.shape()[0], w.data(), true}};
  }
};

// tr(U_n V_i W_o): x V and a U are matrix products; a small product joins their p r numbers for
// each token, and the last product takes the result.
struct tr_by_eigen {
  const tr_mumoe<1> m;
  const tensor<float, 3> u;  // n p q
  const tensor<float, 3> v;  // i q r
  const tensor<float, 3> w;  // p r o
  const extent p, q, r;

  explicit tr_by_eigen(const tr_mumoe<1>& layer)
      : m(layer),
        u(permuted<1, 0, 2>(layer.experts.experts[0])),
        v(permuted<1, 0, 2>(layer.experts.input)),
        w(permuted<2, 0, 1>(layer.experts.output)),
        p(w.shape()[0]),
        q(v.shape()[1]),
        r(v.shape()[2]) {}

  void operator()(const const_map& x, map y) const {
    const matrix mixed = coefficients(m.gate, x) * as_matrix(u, p * q), z = x * as_matrix(v, q * r);
    matrix joined(x.rows(), index(p * r));
    for (Eigen::Index t = 0; t < x.rows(); ++t)
      map(joined.row(t).data(), index(p), index(r)).noalias() =
          const_map(mixed.row(t).data(), index(p), index(q)) *
          const_map(z.row(t).data(), index(q), index(r));
    y.noalias() = joined * as_matrix(w);
  }

  void expert(extent n, map weight) const {
    matrix joined(weight.rows(), index(p * r));
    const const_map mixed(u.data() + n * p * q, index(p), index(q));
    for (Eigen::Index i = 0; i < weight.rows(); ++i)
      map(joined.row(i).data(), index(p), index(r)).noalias() =
          mixed * const_map(v.data() + static_cast<extent>(i) * q * r, index(q), index(r));
    weight.noalias() = joined * as_matrix(w);
  }

  std::vector<product> products(extent tokens) const {
    const extent n = u.shape()[0], i = v.shape()[0];
    return {{tokens, i, n, m.gate.projections[0].data()},
            {tokens, n, p * q, u.data()},
            {tokens, i, q * r, v.data()},
            {tokens, p * r, w.shape()[2], w.data()}};
  }
};

template <class T, class Layer, class Eigen_form>
struct mumoe_model : model {
  mumoe_size size;
  Layer layer;
  std::shared_ptr<const Eigen_form> eigen;
  std::shared_ptr<std::optional<dense_mumoe<1>>> naive =
      std::make_shared<std::optional<dense_mumoe<1>>>();

  mumoe_model(const mumoe_size& s, auto layers)
      : size(s),
        layer(std::move(layers.first)),
        eigen(std::make_shared<const Eigen_form>(std::move(layers.second))) {}

  contest on(extent tokens) const override {
    const auto x = random_rows(tokens, size.i);
    contest c = contest_of(layer, eigen->m, x, size.o, bytes_of_weight<T>);
    c.by_eigen = [x, form = eigen](extent first, extent count, auto& y) {
      (*form)(rows_of(x, first, count), rows_of(y, first, count));
    };
    if (std::is_same_v<T, float>)
      c.naive = [x, form = eigen, layer = naive, s = size] {
        if (!*layer) *layer = dense(*form, s);
        return compiled_form(**layer, x);
      };
    c.products = eigen->products(tokens);
    return c;
  }

  static dense_mumoe<1> dense(const Eigen_form& form, const mumoe_size& s) {
    tensor<float, 3> w({s.n, s.i, s.o});
    for (extent n = 0; n < s.n; ++n)
      form.expert(n, {w.data() + n * s.i * s.o, index(s.i), index(s.o)});
    return {form.m.gate, {}, {w}};
  }
};

template <class T>
struct cp_model : mumoe_model<T, cp_mumoe<1, T>, cp_by_eigen> {
  explicit cp_model(const mumoe_size& s)
      : cp_model::mumoe_model(s, layer_and_plain<T>([&](auto p) { return make_cp(s, p); })) {}
};
template <class T>
struct tr_model : mumoe_model<T, tr_mumoe<1, T>, tr_by_eigen> {
  explicit tr_model(const mumoe_size& s)
      : tr_model::mumoe_model(s, layer_and_plain<T>([&](auto p) { return make_tr(s, p); })) {}
};

const suite mumoe_rows([](bool tiny) {
  constexpr mumoe_size cp = {"cp", 512, 768, 768, 0, 512}, tr = {"tr", 512, 768, 768, 4, 512};
  constexpr mumoe_size tiny_cp = {"cp_tiny", 20, 30, 25, 0, 12},
                       tiny_tr = {"tr_tiny", 20, 30, 25, 3, 12};
  add_sizes<cp_model>("mumoe", tiny ? tiny_cp : cp);
  add_sizes<tr_model>("mumoe", tiny ? tiny_tr : tr);
});

}  // namespace
}  // namespace fmoe::bench
