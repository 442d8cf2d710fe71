// SPDX-License-Identifier: MIT
// AoE at d = 768: 2 of 8 experts of rank 256, with the width that Eq. 5 gives, and 3 of 64 experts
// of rank 64 and width 512. The naive form takes every token through every expert.
#include <numeric>

#include <fmoe/aoe.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

struct aoe_size {
  const char* name;
  extent d, n, l, w, k;
};

template <class T, class Stored>
aoe<T> make_aoe(const aoe_size& s, parameters<T, Stored> p) {
  aoe<T> m;
  m.down = p.weight(std::array{s.d, s.n, s.l}, s.d);
  m.up = p.weight(std::array{s.n, s.l, s.w}, s.l);
  m.linear = p.weight(std::array{s.n, s.d, s.w}, s.d);
  m.output = p.weight(std::array{s.n, s.w, s.d}, s.w);
  m.route.active = s.k;
  return m;
}

// The tokens of an expert, and the weight of the expert for each of them.
struct group {
  std::vector<Eigen::Index> tokens;
  std::vector<float> weights;
};

const_map of_expert(const parameter<float, 3>& t, extent expert) {
  const auto [n, rows, columns] = t.shape();
  return {t.data() + expert * rows * columns, index(rows), index(columns)};
}

// Returns for each expert the tokens that choose it: a token chooses the K experts with the
// greatest norms, and the weights are the softmax over these. `everyone` gives all tokens to each
// expert, with weight 0 where it is not chosen.
std::vector<group> choose_experts(const aoe_size& s, const matrix& cache, bool everyone) {
  std::vector<group> groups(s.n);
  std::vector<extent> order(s.n);
  const auto chosen_end = order.begin() + static_cast<std::ptrdiff_t>(s.k);
  for (Eigen::Index t = 0; t < cache.rows(); ++t) {
    const row_vector norms =
        const_map(cache.row(t).data(), index(s.n), index(s.l)).rowwise().norm().transpose();
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), chosen_end, order.end(),
                      [&](extent a, extent b) { return norms[index(a)] > norms[index(b)]; });
    row_vector weights = row_vector::Zero(index(s.n));
    for (auto e = order.begin(); e != chosen_end; ++e)
      weights[index(*e)] = std::exp(norms[index(*e)] - norms[index(order[0])]);
    weights /= weights.sum();
    for (extent e = 0; e < s.n; ++e) {
      if (!everyone && weights[index(e)] == 0) continue;
      groups[e].tokens.push_back(t);
      groups[e].weights.push_back(weights[index(e)]);
    }
  }
  return groups;
}

// Computes the cache for all experts, then each expert on its tokens.
void by_eigen(const aoe<>& m, const aoe_size& s, const const_map& x, map y, bool everyone) {
  const matrix cache = x * as_matrix(m.down, s.n * s.l);
  const auto groups = choose_experts(s, cache, everyone);
  y.setZero();
  for (extent e = 0; e < s.n; ++e) {
    const auto& [tokens, weights] = groups[e];
    if (tokens.empty()) continue;
    const matrix own_x = x(tokens, Eigen::seqN(0, x.cols()));
    const matrix own_cache = cache(tokens, Eigen::seqN(index(e * s.l), index(s.l)));
    matrix hidden = own_cache * of_expert(m.up, e);
    const matrix linear = own_x * of_expert(m.linear, e);
    hidden = (hidden.array() / (1 + (-hidden.array()).exp()) * linear.array()).matrix();
    const matrix output = hidden * of_expert(m.output, e);
    for (extent t = 0; t < tokens.size(); ++t)
      y.row(tokens[t]) += weights[t] * output.row(index(t));
  }
}

template <class T>
struct aoe_model : model {
  aoe_size size;
  std::pair<aoe<T>, aoe<float>> layers;

  explicit aoe_model(const aoe_size& s)
      : size(s),
        layers(layer_and_plain<T>([&](auto p) { return make_aoe(s, p); })) {}

  contest on(extent tokens) const override {
    const auto& [layer, plain] = layers;
    const auto& [name, d, n, l, w, k] = size;
    const auto x = random_rows(tokens, d);
    contest c = contest_of(layer, plain, x, d, bytes_of_weight<T>);
    c.selects = true;
    const auto by = [x, m = plain, s = size](bool everyone) {
      return [=](extent first, extent count, tensor<float, 2>& y) {
        by_eigen(m, s, rows_of(x, first, count), rows_of(y, first, count), everyone);
      };
    };
    c.by_eigen = by(false);
    if (std::is_same_v<T, float>)
      c.naive = [all = by(true), tokens] { return [=](auto& y) { all(0, tokens, y); }; };
    c.products = {{tokens, d, n * l, plain.down.data()}};
    const matrix cache = rows_of(x, 0, tokens) * as_matrix(plain.down, n * l);
    extent used = 0;  // number of experts used; cost() expects every choice to be another one
    for (extent e = 0; const group& g : choose_experts(size, cache, false)) {
      const extent rows = g.tokens.size();
      if (rows > 0) {
        ++used;
        c.products.push_back({rows, l, w, plain.up.data() + e * l * w});
        c.products.push_back({rows, d, w, plain.linear.data() + e * d * w});
        c.products.push_back({rows, w, d, plain.output.data() + e * w * d});
      }
      ++e;
    }
    c.weight_bytes =
        bytes_of_weight<T> * static_cast<double>(d * n * l + used * (l * w + 2 * d * w));
    return c;
  }
};

const suite aoe_rows([](bool tiny) {
  if (tiny) return add_sizes<aoe_model>("aoe", aoe_size{"tiny", 24, 6, 5, 30, 2});
  add_sizes<aoe_model>("aoe", aoe_size{"2of8", 768, 8, 256, 3840, 2});
  add_sizes<aoe_model>("aoe", aoe_size{"3of64", 768, 64, 64, 512, 3});
});

}  // namespace
}  // namespace fmoe::bench
