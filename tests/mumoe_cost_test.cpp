// SPDX-License-Identifier: MIT
// Checks the numbers of muMoE's paper, exactly, with the layers of mumoe.hpp: Table 10 (parameters,
// with bias and gate) and Table 8 (multiply-adds, which the paper calls FLOPs, with gate and
// without bias). No tensor here has elements.
#include <fmoe/cost.hpp>
#include <fmoe/mumoe.hpp>

#include "support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <std::size_t Rank>
parameter<float, Rank> w(const std::array<extent, Rank>& shape) {
  return tensor<float, Rank>(shape, std::make_shared<storage>(extent{0}));
}

template <class Layer, extent E>
cost_report cost_of(Layer& l, const std::array<extent, E>& experts, extent inputs) {
  for (extent e = 0; e < E; ++e) l.gate.projections[e] = w<2>({inputs, experts[e]});
  return cost(l(tensor<float, 2>(w<2>({1, inputs}))));
}

template <extent E>
cost_report cp(const std::array<extent, E>& experts, extent in, extent out, extent rank,
               bool bias) {
  cp_mumoe<E> l;
  for (extent e = 0; e < E; ++e) l.experts.experts[e] = w<2>({experts[e], rank});
  l.experts.input = w<2>({in + bias, rank});
  l.experts.output = w<2>({out, rank});
  return cost_of(l, experts, in);
}

// Every rank is 4, except the one between input and output, which is 512.
template <extent E>
cost_report tr(const std::array<extent, E>& experts, extent in, extent out, bool bias) {
  tr_mumoe<E> l;
  for (extent e = 0; e < E; ++e) l.experts.experts[e] = w<3>({4, experts[e], 4});
  l.experts.input = w<3>({4, in + bias, 512});
  l.experts.output = w<3>({512, out, 4});
  return cost_of(l, experts, in);
}

template <class... N>
double cp_parameters(N... n) {
  return cp(std::array{static_cast<extent>(n)...}, 768, 1000, 512, true).factorized.parameters;
}
template <class... N>
double tr_parameters(N... n) {
  return tr(std::array{static_cast<extent>(n)...}, 768, 1000, true).factorized.parameters;
}

TEST_CASE("Table 10: CP, one level and hierarchies", "[mumoe][cost]") {
  CHECK(cp_parameters(128) == 1069568);
  CHECK(cp_parameters(128, 2) == 1072128);
  CHECK(cp_parameters(128, 2, 2) == 1074688);
  CHECK(cp_parameters(128, 2, 2, 2) == 1077248);
  CHECK(cp_parameters(128, 4) == 1074688);
  CHECK(cp_parameters(128, 4, 4) == 1079808);
  CHECK(cp_parameters(128, 4, 4, 4) == 1084928);
  CHECK(cp_parameters(256) == 1233408);
  CHECK(cp_parameters(512) == 1561088);
  CHECK(cp_parameters(1024) == 2216448);
  CHECK(cp_parameters(2048) == 3527168);
  CHECK(cp_parameters(8192) == 11391488);
}

TEST_CASE("Table 10: tensor ring, one level and hierarchies", "[mumoe][cost]") {
  CHECK(tr_parameters(128) == 3723264);
  CHECK(tr_parameters(128, 2) == 3724832);
  CHECK(tr_parameters(128, 2, 2) == 3726400);
  CHECK(tr_parameters(128, 2, 2, 2) == 3727968);
  CHECK(tr_parameters(128, 4) == 3726400);
  CHECK(tr_parameters(128, 4, 4) == 3729536);
  CHECK(tr_parameters(128, 4, 4, 4) == 3732672);
  CHECK(tr_parameters(256) == 3823616);
  CHECK(tr_parameters(512) == 4024320);
  CHECK(tr_parameters(1024) == 4425728);  // the paper prints twice this number
  CHECK(tr_parameters(2048) == 5228544);
  CHECK(tr_parameters(8192) == 10045440);
}

TEST_CASE("Table 10: regular mixtures, their gate left out", "[mumoe][cost]") {
  const auto regular = [](extent n) {
    dense_mumoe<> l;
    l.experts.weight = w<3>({n, 769, 1000});
    return cost_of(l, std::array{n}, 768).factorized.parameters - 768. * static_cast<double>(n);
  };
  CHECK(regular(128) == 98432000);
  CHECK(regular(8192) == 6299648000);
}

TEST_CASE("Table 8: multiply-adds of the factorized forward passes", "[mumoe][cost]") {
  CHECK(cp(std::array{extent{512}}, 768, 768, 512, false).factorized.multiply_adds == 1441792);
  const auto ring = tr(std::array{extent{512}}, 768, 768, false).factorized;
  CHECK(ring.multiply_adds == 3555328);
  CHECK(ring.parameters == 3547136);
}

TEST_CASE("norms of contributions make no expert", "[mumoe][cost]") {
  const extent N = 512, I = 768, O = 768;
  const auto found = [&](auto& l) {
    l.gate.projections[0] = w<2>({I, N});
    return cost(l.contribution_norms(tensor<float, 2>(w<2>({1, I})))).factorized.multiply_adds -
           I * N;
  };
  cp_mumoe<> cp;
  cp.experts = {{w<2>({N, 512})}, w<2>({I, 512}), w<2>({O, 512})};
  CHECK(found(cp) == 512 * (I + N + N * O));
  tr_mumoe<> ring;
  ring.experts = {{w<3>({4, N, 4})}, w<3>({4, I, 512}), w<3>({512, O, 4})};
  CHECK(found(ring) == 4 * I * 512 + 4 * 4 * (512 + N) * O + 4 * 4 * N);
  tucker_mumoe<> tucker;
  tucker.experts = {{w<2>({N, 32})}, w<2>({I, 64}), w<2>({O, 64}), w<3>({32, 64, 64})};
  CHECK(found(tucker) == I * 64 + 32 * 64 * 64 + 32 * 64 * O + 32 * N + N * 32 * O);
  dense_mumoe<> dense;
  dense.experts = {w<3>({N, I, O})};
  CHECK(found(dense) == N * I * O + N * O);
}

// The table counts every product of factors that makes W, and the product of W with a token.
TEST_CASE("Table 8: with the weight materialised", "[mumoe][cost]") {
  const double weight = 512. * 768 * 768, gate = 768. * 512;
  const auto of_cp = cp(std::array{extent{512}}, 768, 768, 512, false);
  CHECK(of_cp.naive.once + weight == 155122139136);  // printed as 155.1G
  CHECK(of_cp.naive_multiply_adds == weight + gate);
  const double intermediate = 4. * 512 * 768 * 512;  // R1 N I R3: the table counts storing it
  const auto of_tr = tr(std::array{extent{512}}, 768, 768, false);
  const double ring = of_tr.naive.once + weight;
  CHECK(of_tr.naive_multiply_adds == weight + gate);
  CHECK(ring == 621998505984);
  CHECK(ring + intermediate == 622803812352);  // printed as 622.8B
}

TEST_CASE("E levels cost R (N1 + ... + NE + I + O), whatever their sizes", "[mumoe][cost]") {
  const auto formula = [](double experts, double gates) {
    return 512 * (experts + 769 + 1000) + 768 * gates;
  };
  const auto found = [](auto... n) {
    return cp(std::array{static_cast<extent>(n)...}, 768, 1000, 512, true).factorized;
  };
  for (const extent n : {extent{2}, extent{4}, extent{64}}) {
    const double m = static_cast<double>(n);
    CHECK(found(128, n).multiply_adds == formula(128 + m, 128 + m));
    CHECK(found(128, n, n).multiply_adds == formula(128 + 2 * m, 128 + 2 * m));
    CHECK(found(128, n, n, n).multiply_adds == formula(128 + 3 * m, 128 + 3 * m));
    CHECK(found(128, n, n, n, n).multiply_adds == formula(128 + 4 * m, 128 + 4 * m));
    CHECK(found(128, n, n, n, n, n).multiply_adds == formula(128 + 5 * m, 128 + 5 * m));
    CHECK(found(128, n, n, n, n, n).once == 0);
  }
}

TEST_CASE("a ring of E levels costs its cores and a chain of small products", "[mumoe][cost]") {
  // a_e U_e, z V, then p x q times q x r level by level, and R1 R3 O at last.
  const auto found = [](auto... n) {
    return tr(std::array{static_cast<extent>(n)...}, 768, 1000, true).factorized.multiply_adds;
  };
  const double ends = 4. * 769 * 512 + 512. * 4 * 1000, last = 4. * 4 * 512;
  CHECK(found(128) == ends + last + (16 + 768) * 128);
  CHECK(found(128, 2) == ends + last + (16 + 768) * 130 + 64);
  CHECK(found(128, 2, 2) == ends + last + (16 + 768) * 132 + 128);
  CHECK(found(128, 4, 4, 4) == ends + last + (16 + 768) * 140 + 192);
}

}  // namespace
