// SPDX-License-Identifier: MIT
// MxD at the sizes of the paper's Table 2, at that of examples/data, and at one whose 4,096 experts
// fit in memory one by one.
#include <numeric>

#include <unsupported/Eigen/SpecialFunctions>

#include <fmoe/mxd.hpp>

#include "support/contest.hpp"
#include "support/eigen.hpp"
#include "support/random.hpp"

namespace fmoe::bench {
namespace {

struct mxd_size {
  const char* name;
  extent i, h, n, o, k;
};

template <class T, class Stored>
mxd<T> make_mxd(const mxd_size& s, parameters<T, Stored> p) {
  mxd<T> m;
  m.encoder = p.weight(std::array{s.i, s.h}, s.i);
  m.encoder_bias = p.bias(s.h);
  m.gate = p.weight(std::array{s.i, s.n}, s.i);
  m.gate_bias = p.bias(s.n);
  m.scales = p.weight(std::array{s.n, s.o}, 1);
  m.decoder = p.weight(std::array{s.h, s.o}, s.h);
  m.bias = p.bias(s.o);
  m.active = s.k;
  return m;
}

// Computes three products, top-k by nth_element, and a gather of K rows.
void by_eigen(const mxd<float>& m, const const_map& x, map y) {
  const matrix scores = ((x * as_matrix(m.gate)).rowwise() + as_row(m.gate_bias)).cwiseMax(0.0f);
  matrix z = (x * as_matrix(m.encoder)).rowwise() + as_row(m.encoder_bias);
  z = (z.array() * 0.5f * (1.0f + (z.array() * 0.70710678f).erf())).matrix();
  y.noalias() = z * as_matrix(m.decoder);
  const const_map scales = as_matrix(m.scales);
  std::vector<int> order(static_cast<extent>(scores.cols()));
  row_vector mixed(y.cols());
  for (Eigen::Index t = 0; t < y.rows(); ++t) {
    std::iota(order.begin(), order.end(), 0);
    const auto row = scores.row(t);
    const auto better = [&](int a, int b) {
      return row[a] > row[b] || (row[a] == row[b] && a < b);
    };
    std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(m.active),
                     order.end(), better);
    mixed.setZero();
    for (extent k = 0; k < m.active; ++k) mixed += row[order[k]] * scales.row(order[k]);
    y.row(t) = y.row(t).cwiseProduct(mixed) + as_row(m.bias);
  }
}

template <class T>
struct mxd_model : model {
  mxd_size size;
  std::pair<mxd<T>, mxd<float>> layers;

  explicit mxd_model(const mxd_size& s)
      : size(s),
        layers(layer_and_plain<T>([&](auto p) { return make_mxd(s, p); })) {}

  contest on(extent tokens) const override {
    const auto& [layer, plain] = layers;
    const auto x = random_rows(tokens, size.i);
    contest c = contest_of(layer, plain, x, size.o, bytes_of_weight<T>);
    c.selects = true;
    c.by_eigen = [x, m = plain](extent first, extent count, auto& y) {
      by_eigen(m, rows_of(x, first, count), rows_of(y, first, count));
    };
    if (std::is_same_v<T, float> && size.n * size.h * size.o <= extent{1} << 27)  // half a gigabyte
      c.naive = [x, m = plain] { return compiled_form(m, x, {.naive = true}); };
    c.products = {{tokens, size.i, size.n, plain.gate.data()},
                  {tokens, size.i, size.h, plain.encoder.data()},
                  {tokens, size.h, size.o, plain.decoder.data()}};
    return c;
  }
};

const suite mxd_rows([](bool tiny) {
  constexpr mxd_size papers[] = {{"gpt2", 768, 3072, 21'490, 768, 32},
                                 {"pythia410m", 1024, 4096, 28'658, 1024, 32},
                                 {"minilm", 384, 1536, 4096, 384, 32},
                                 {"small", 128, 256, 4096, 128, 32}};
  constexpr mxd_size tests[] = {{"tiny", 24, 40, 100, 20, 5}};
  for (const mxd_size& s : tiny ? std::span<const mxd_size>(tests) : papers)
    add_sizes<mxd_model>("mxd", s);
});

}  // namespace
}  // namespace fmoe::bench
