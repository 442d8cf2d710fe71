// SPDX-License-Identifier: MIT
// PEER at d = 768 with 65,536 experts, of which 8 heads select 16 each.
#include <numeric>

#include <unsupported/Eigen/SpecialFunctions>

#include <fmoe/peer.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

struct peer_size {
  const char* name;
  extent d, h, s, key, active;  // h heads, two lists of s keys of `key` numbers each
};

template <class T, class Stored>
peer<T> make_peer(const peer_size& n, parameters<T, Stored> p) {
  peer<T> m;
  m.queries = p.weight(std::array{n.d, 2 * n.h * n.key}, n.d);
  m.keys = p.weight(std::array{n.h, n.s, extent{2}, n.key}, n.key);
  m.down = p.weight(std::array{n.s * n.s, n.d}, n.d);
  m.up = p.weight(std::array{n.s * n.s, n.d}, 1);
  m.active = n.active;
  return m;
}

struct scored {
  float score;
  extent index;
};

bool is_better(const scored& a, const scored& b) {
  return a.score > b.score || (a.score == b.score && a.index < b.index);
}

void keep_best(std::vector<scored>& all, extent k) {
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(k - 1), is_better);
  all.resize(k);
}

// Computes the queries as one product, and the rest token by token.
void by_eigen(const peer<float>& m, const peer_size& n, const const_map& x, map y) {
  const matrix queries = x * as_matrix(m.queries);
  const const_map down = as_matrix(m.down), up = as_matrix(m.up);
  std::vector<scored> lists[2], sums;
  y.setZero();
  for (Eigen::Index t = 0; t < y.rows(); ++t)
    for (extent h = 0; h < n.h; ++h) {
      for (extent l = 0; l < 2; ++l) {
        const auto q = queries.row(t).segment(index((l * n.h + h) * n.key), index(n.key));
        lists[l].clear();
        for (extent s = 0; s < n.s; ++s)
          lists[l].push_back(
              {q.dot(Eigen::Map<const row_vector>(&m.keys(h, s, l, 0), index(n.key))), s});
        keep_best(lists[l], n.active);
      }
      sums.clear();
      for (const scored& a : lists[0])
        for (const scored& b : lists[1])
          sums.push_back({a.score + b.score, a.index * n.s + b.index});
      keep_best(sums, n.active);
      const float top = std::ranges::max(sums, {}, &scored::score).score;
      float whole = 0;
      for (scored& e : sums) whole += e.score = std::exp(e.score - top);
      for (const scored& e : sums) {
        const float z = x.row(t).dot(down.row(index(e.index)));
        y.row(t) +=
            e.score / whole * 0.5f * z * (1 + std::erf(0.70710678f * z)) * up.row(index(e.index));
      }
    }
}

template <class T>
struct peer_model : model {
  peer_size size;
  std::pair<peer<T>, peer<float>> layers;

  explicit peer_model(const peer_size& s)
      : size(s),
        layers(layer_and_plain<T>([&](auto p) { return make_peer(s, p); })) {}

  contest on(extent tokens) const override {
    const auto& [layer, plain] = layers;
    const auto x = random_rows(tokens, size.d);
    contest c = contest_of(layer, plain, x, size.d, sizeof(T));
    c.selects = true;
    c.by_eigen = [x, m = plain, s = size](extent first, extent count, auto& y) {
      by_eigen(m, s, rows_of(x, first, count), rows_of(y, first, count));
    };
    c.products = {{tokens, size.d, 2 * size.h * size.key, plain.queries.data()}};
    return c;
  }
};

const suite peer_rows([](bool tiny) {
  if (tiny) return add_sizes<peer_model>("peer", peer_size{"tiny", 24, 3, 9, 5, 4});
  add_sizes<peer_model>("peer", peer_size{"65536", 768, 8, 256, 64, 16});
});

}  // namespace
}  // namespace fmoe::bench
