// SPDX-License-Identifier: MIT
// Compares sums without a list of pairs with the oracle's dense mask.
#include <fmoe/expr/all_except.hpp>

#include <cstring>
#include <random>

#include "../support/agree.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using pairs = std::vector<index_pair>;

// Each pair is in the list with the same probability, in no order, and every third one twice.
pairs random_pairs(extent rows, extent columns, double share, unsigned seed) {
  std::mt19937 bits(seed);
  pairs r;
  for (extent i = 0; i < rows; ++i)
    for (extent j = 0; j < columns; ++j)
      if (std::uniform_real_distribution<>()(bits) < share)
        r.insert(r.begin() + static_cast<std::ptrdiff_t>(bits() % (r.size() + 1)), {i, j});
  const extent once = r.size();
  for (extent k = 0; k < once; k += 3) r.push_back(r[k]);
  return r;
}

TEMPLATE_TEST_CASE("a masked sum is the sum over the kept pairs, whatever labels the result has",
                   "[all_except]", float, double) {
  using T = TestType;
  for (const auto& [t, p, i, j, m] : {std::array<extent, 5>{7, 3, 9, 11, 6},
                                      {1, 1, 1, 1, 1},
                                      {5, 2, 70, 3, 17},
                                      {11, 3, 66, 65, 5}})
    for (const double share : {0.02, 0.4, 0.97}) {
      INFO(t << ' ' << p << ' ' << i << ' ' << j << ' ' << m << ' ' << share);
      const auto u = random<tensor<T, 3>>({t, i, m}, 1);
      const auto g = random<tensor<T, 3>>({t, p, i}, 2), h = random<tensor<T, 3>>({t, p, j}, 3);
      const auto kept = all_except(random_pairs(i, j, share, 4), i, j);
      const auto turned = all_except(random_pairs(j, i, share, 5), j, i);
      CHECK(agrees(einsum<"tim,tpi,tpj,ij->tjm">(u, g, h, kept)));
      CHECK(agrees(einsum<"tim,tpi,tpj,ij->tmj">(u, g, h, kept)));
      CHECK(agrees(einsum<"tim,ij,tpi,tpj->tim">(u, kept, g, h)));
      CHECK(agrees(einsum<"ji,tim,tpi,tpj->tjm">(turned, u, g, h)));
      CHECK(agrees(einsum<"tpi,tpj,ij->tj">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->ti">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->tpi">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->tij">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->tpji">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->tp">(g, h, kept)));
      CHECK(agrees(einsum<"tpi,tpj,ij->t">(g, h, kept)));
    }
}

TEST_CASE("every kind of operand goes with a mask", "[all_except]") {
  const extent t = 9, p = 3, i = 10, j = 12, m = 5;
  const auto kept = all_except(random_pairs(i, j, 0.3, 4), i, j);
  const auto g = random<tensor<float, 3>>({t, p, i}, 2), h = random<tensor<float, 3>>({t, p, j}, 3);
  const auto each =
      random<tensor<float, 4>>({t, p, i, m}, 1);  // a summed label beside the result's own
  CHECK(agrees(einsum<"tpim,tpi,tpj,ij->tjm">(each, g, h, kept)));
  CHECK(agrees(einsum<"tpi,jm,ij->tpm">(g, random<parameter<float, 2>>({j, m}, 5), kept)));
  CHECK(agrees(einsum<"tpi,ij,jm->tjm">(g, kept, random<parameter<float, 2>>({j, m}, 5))));
  CHECK(agrees(einsum<"tij,ij->tij">(random<tensor<float, 3>>({t, i, j}, 6), kept)));
  CHECK(agrees(einsum<"tij,ij->tj">(random<tensor<float, 3>>({t, i, j}, 6), kept)));
  CHECK(agrees(einsum<"tii,tij,ij->tj">(random<tensor<float, 3>>({t, i, i}, 6),
                                        random<tensor<float, 3>>({t, i, j}, 7), kept)));
  CHECK(agrees(einsum<"pi,pj,ij->j">(random<tensor<float, 2>>({p, i}, 6),
                                     random<tensor<float, 2>>({p, j}, 7), kept)));
  CHECK(agrees(einsum<"tpi,tpj,ij->tj">(top_k(g, 3), top_k(h, 4, weighting::softmax), kept)));
  const auto masked = einsum<"tpi,tpj,ij->tj">(g, h, kept);
  CHECK(
      agrees(relu(masked) + einsum<"tpi,tpj->tj">(g, h)));  // one mask, and the same sum without it
  CHECK(agrees(einsum<"tj,jm->tm">(masked, random<parameter<float, 2>>({j, m}, 5))));
  CHECK(agrees(einsum<"tpi,jm,ij->tpm">(g, random<parameter<float, 2>>({j, m}, 5), kept),
               {.naive = true}));
}

TEST_CASE("where everything is left out the sum is exactly zero, elsewhere nothing changes",
          "[all_except]") {
  const extent t = 6, p = 2, i = 8, j = 8, m = 7;
  const auto u = random<tensor<float, 3>>({t, i, m}, 1, 1e6f);
  const auto g = random<tensor<float, 3>>({t, p, i}, 2), h = random<tensor<float, 3>>({t, p, j}, 3);
  pairs gone;
  for (extent k = 0; k < i; ++k) gone.push_back({k, 5});
  gone.push_back({2, 6});
  const auto y = evaluate(einsum<"tim,tpi,tpj,ij->tjm">(u, g, h, all_except(gone, i, j)));
  const auto whole = evaluate(einsum<"tim,tpi,tpj->tjm">(u, g, h));
  for (extent a = 0; a < t; ++a)
    for (extent b = 0; b < j; ++b)
      for (extent c = 0; c < m; ++c) {
        if (b == 5) CHECK(y(a, b, c) == 0);
        else if (b != 6) CHECK(y(a, b, c) == whole(a, b, c));
      }
  const auto none =
      evaluate(einsum<"tim,tpi,tpj,ij->tjm">(u, g, h, all_except(random_pairs(i, j, 2, 1), i, j)));
  CHECK(std::all_of(none.data(), none.data() + none.size(), [](float x) { return x == 0; }));
}

TEST_CASE("rows with a mask do not depend on the tile", "[all_except]") {
  const extent t = 29, p = 2, i = 33, j = 21, m = 19;
  const auto y = einsum<"tim,tpi,tpj,ij->tjm">(
      random<tensor<float, 3>>({t, i, m}, 1), random<tensor<float, 3>>({t, p, i}, 2),
      random<tensor<float, 3>>({t, p, j}, 3), all_except(random_pairs(i, j, 0.3, 4), i, j));
  const auto whole = evaluate(y);
  for (const extent tile : {extent{1}, extent{2}, extent{5}}) {
    planner::plan_options options = tiny_options();
    options.shape.tile = tile;
    ir::graph g;
    const ir::node_id root = y.lower(g);
    const plan::step_plan planned = make_plan(g, root, t, options);
    CHECK(planned.tile == tile);
    CHECK(placement_is_sound(planned));
    const auto rows = evaluate(y, limited<float>(options));
    CHECK(std::memcmp(rows.data(), whole.data(), whole.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("the plan of a masked sum", "[all_except][plan]") {
  const auto lines_of = [](const char* subscripts, const pairs& left_out) {
    blueprint g;
    std::vector<ir::node_id> operands{g.tensor({4, 3, 9}), g.tensor({4, 3, 9}),
                                      all_except(left_out, 9, 9).lower(g)};
    if (operand_count(subscripts) == 4) operands.insert(operands.begin(), g.tensor({4, 9, 6}));
    return describe(make_program(g, g.einsum(subscripts, operands), machine_options()));
  };
  CHECK(lines_of("tim,tpi,tpj,ij->tjm", {}) ==
        lines{"batched tpi,tim->tpm", "batched tpj,tpm->tjm"});
  CHECK(lines_of("tim,tpi,tpj,ij->tjm", {{1, 2}}) ==
        lines{"batched tpi,tim->tpm", "batched tpj,tpm->tjm", "exclude tim,tpi,tpj->tjm +="});
  CHECK(lines_of("tpi,tpj,ij->t", {{1, 2}}).back() == "reduce tj->t");
}

TEST_CASE("misuse of a mask", "[all_except]") {
  CHECK_THROWS_AS(all_except(pairs{{3, 0}}, 3, 4), value_error);
  CHECK_THROWS_AS(all_except(pairs{{0, 4}}, 3, 4), value_error);
  CHECK_NOTHROW(all_except(pairs{{2, 3}}, 3, 4));
  const auto kept = all_except(pairs{{2, 3}}, 3, 4);
  const auto g = random<tensor<float, 2>>({5, 3}, 2), h = random<tensor<float, 2>>({5, 4}, 3);
  CHECK_THROWS_AS(evaluate(einsum<"ti,tj,ij->t">(h, g, kept)), shape_error);
  CHECK_THROWS_AS(evaluate(einsum<"ti,ij->tj">(g, kept)), value_error);  // j is the mask's alone
  CHECK_THROWS_AS(evaluate(einsum<"ti,tj,ij,ij->t">(g, h, kept, kept)), value_error);
  CHECK_THROWS_AS(evaluate(kept), value_error);
  CHECK_THROWS_AS(evaluate(relu(kept)), value_error);
  CHECK_THROWS_AS(evaluate(h + kept), shape_error);
  CHECK_THROWS_AS(evaluate(concat<0>(kept, kept)), value_error);
  const auto square = all_except(pairs{{2, 2}}, 3, 3);
  CHECK_THROWS_AS(evaluate(einsum<"ti,ii->t">(g, square)), value_error);
  const auto w = random<parameter<float, 2>>({3, 4}, 4);
  CHECK_THROWS_AS(evaluate(einsum<"ti,ijk->tjk">(g, random<parameter<float, 3>>({3, 4, 2}, 5)) +
                           einsum<"ij,ij,jk->jk">(w, kept, random<parameter<float, 2>>({4, 2}, 5))),
                  value_error);
}

}  // namespace
