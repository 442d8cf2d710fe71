// SPDX-License-Identifier: MIT
// Checks the ranks of matrices with known singular values, and those of random experts, which reach
// the bounds of the papers.
#include <fmoe/rank.hpp>

#include <fmoe/moe.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"
#include "support/oracle.hpp"
#include "support/svd.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using matrix = tensor<double, 2>;

// I - 2 v v' / |v|^2, which does not change singular values.
matrix reflection(extent n, unsigned seed) {
  const auto v = random<tensor<double, 1>>({n}, seed);
  double squares = 0;
  for (extent i = 0; i < n; ++i) squares += v(i) * v(i);
  matrix h({n, n});
  for (extent i = 0; i < n; ++i)
    for (extent j = 0; j < n; ++j) h(i, j) = (i == j ? 1 : 0) - 2 * v(i) * v(j) / squares;
  return h;
}

matrix product(const matrix& a, const matrix& b) {
  matrix c({a.shape()[0], b.shape()[1]});
  for (extent i = 0; i < a.shape()[0]; ++i)
    for (extent k = 0; k < a.shape()[1]; ++k)
      for (extent j = 0; j < b.shape()[1]; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

matrix diagonal(extent rows, extent columns, const std::vector<double>& values) {
  matrix d({rows, columns});
  for (extent i = 0; i < values.size(); ++i) d(i, i) = values[i];
  return d;
}

TEST_CASE("singular values are those that a matrix is made of", "[rank]") {
  for (const auto& [rows, columns] :
       {std::pair<extent, extent>{5, 3}, {3, 5}, {40, 24}, {24, 40}, {1, 7}, {7, 1}}) {
    std::vector<double> values;
    for (extent k = std::min(rows, columns); k-- > 0;)
      values.push_back(0.5 + static_cast<double>(k));
    const auto m = product(product(reflection(rows, 1), diagonal(rows, columns, values)),
                           reflection(columns, 2));
    const auto found = singular_values(m);
    REQUIRE(found.size() == values.size());
    for (extent k = 0; k < values.size(); ++k)
      CHECK(std::abs(found[k] - values[k]) < 1e-13 * values[0]);
    CHECK(numerical_rank(m) == values.size());
    CHECK(numerical_rank(m, 1.0) == values.size() - 1);
    CHECK(normalised_rank(m, 1.0) ==
          static_cast<double>(values.size() - 1) / static_cast<double>(values.size()));
  }
}

// The default tolerance for 4 x 6 is 6 epsilon.
template <class T>
extent rank_with_smallest(double smallest) {
  tensor<T, 2> m({4, 6});
  for (extent i = 0; i < 4; ++i) m(i, i) = convert<T>(i == 3 ? static_cast<float>(smallest) : 1.f);
  return numerical_rank(m);
}

TEST_CASE("the default tolerance is that of the stored type", "[rank]") {
  CHECK(rank_with_smallest<float>(7 * 0x1p-23) == 4);
  CHECK(rank_with_smallest<float>(5 * 0x1p-23) == 3);
  CHECK(rank_with_smallest<double>(7 * 0x1p-52) == 4);
  CHECK(rank_with_smallest<double>(5 * 0x1p-52) == 3);
  CHECK(rank_with_smallest<bf16>(7 * 0x1p-7) == 4);
  CHECK(rank_with_smallest<bf16>(5 * 0x1p-7) == 3);
  CHECK(rank_with_smallest<f16>(7 * 0x1p-10) == 4);
  CHECK(rank_with_smallest<f16>(5 * 0x1p-10) == 3);
}

TEST_CASE("nothing, zeros, other libraries' matrices, and what has no rank", "[rank]") {
  CHECK(singular_values(matrix({0, 4})).empty());
  CHECK(numerical_rank(matrix({4, 0})) == 0);
  CHECK(normalised_rank(matrix({0, 0})) == 0);
  CHECK(numerical_rank(matrix({3, 4})) == 0);
  CHECK(numerical_rank(Eigen::MatrixXf::Identity(3, 4)) == 3);
  const float ones[2][2] = {{1, 1}, {1, 1}};
  CHECK(normalised_rank(ones) == 0.5);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    const tensor<float, 2> m({2, 2}, {1, 0, bad, 1});
    CHECK_THROWS_AS(singular_values(m), value_error);
    CHECK_THROWS_AS(numerical_rank(m), value_error);
    CHECK_THROWS_AS(normalised_rank(m), value_error);
  }
  CHECK_THROWS_AS(numerical_rank(std::vector<float>{1, 2}), shape_error);
}

TEMPLATE_TEST_CASE("muMoE: experts have the rank that the factors allow", "[rank]", float, double) {
  using T = TestType;
  for (const auto& [i, o, r] : {std::array<extent, 3>{9, 8, 3}, {5, 8, 7}, {9, 4, 7}, {9, 8, 8}}) {
    cp_experts<2, T> cp;
    cp.experts = {random<parameter<T, 2>>({4, r}, 1), random<parameter<T, 2>>({3, r}, 2)};
    cp.input = random<parameter<T, 2>>({i, r}, 3);
    cp.output = random<parameter<T, 2>>({o, r}, 4);
    for (extent n = 0; n < 4; ++n)
      CHECK(numerical_rank(evaluate(cp.expert(n, n % 3))) == std::min({i, o, r}));
  }
  for (const auto& [i, o, r1, r2, r3] : {std::array<extent, 5>{9, 8, 2, 3, 2},
                                         {9, 8, 3, 2, 2},
                                         {4, 8, 3, 3, 2},
                                         {9, 5, 3, 3, 2},
                                         {9, 8, 1, 4, 5}}) {
    const tr_experts<1, T> tr{{random<parameter<T, 3>>({r1, 4, r2}, 1)},
                              random<parameter<T, 3>>({r2, i, r3}, 2),
                              random<parameter<T, 3>>({r3, o, r1}, 3)};
    for (extent n = 0; n < 4; ++n)
      CHECK(numerical_rank(evaluate(tr.expert(n))) == std::min({r3 * std::min(r1, r2), i, o}));
  }
  for (const auto& [i, o, ri, ro, rn] :
       {std::array<extent, 5>{9, 8, 3, 5, 2}, {9, 8, 5, 3, 4}, {2, 8, 5, 4, 1}, {9, 2, 5, 4, 2}}) {
    const tucker_experts<1, T> tucker{{random<parameter<T, 2>>({4, rn}, 1)},
                                      random<parameter<T, 2>>({i, ri}, 2),
                                      random<parameter<T, 2>>({o, ro}, 3),
                                      random<parameter<T, 3>>({rn, ri, ro}, 4)};
    for (extent n = 0; n < 4; ++n)
      CHECK(numerical_rank(evaluate(tucker.expert(n))) == std::min({i, ri, ro * rn, o, ro}));
  }
  const dense_experts<1, T> dense{random<parameter<T, 3>>({4, 9, 7}, 1)};
  CHECK(normalised_rank(evaluate(dense.expert(3))) == 1);
}

TEMPLATE_TEST_CASE(
    "MxD: experts have the rank of the decoder, less the outputs that they scale by 0", "[rank]",
    float, double) {
  using T = TestType;
  mxd<T> layer;
  layer.scales = random<parameter<T, 2>>({5, 8}, 1);
  layer.decoder = random<parameter<T, 2>>({20, 8}, 2);
  for (extent n = 0; n < 5; ++n) CHECK(normalised_rank(evaluate(layer.expert(n))) == 1);
  for (const extent o : std::array<extent, 3>{0, 2, 7}) layer.scales(3, o) = 0;
  CHECK(numerical_rank(evaluate(layer.expert(3))) == 5);
  const auto left = random<tensor<T, 2>>({20, 3}, 3), right = random<tensor<T, 2>>({3, 8}, 4);
  layer.decoder = evaluate(einsum<"hr,ro->ho">(left, right));
  for (const extent n : std::array<extent, 3>{0, 1, 3})
    CHECK(numerical_rank(evaluate(layer.expert(n))) == 3);
  const mov<T> unfolded{random<parameter<T, 2>>({5, 20}, 1), layer.decoder};
  CHECK(numerical_rank(evaluate(unfolded.expert(4))) == 3);
}

}  // namespace
