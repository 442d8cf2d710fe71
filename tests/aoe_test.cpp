// SPDX-License-Identifier: MIT
#include <fmoe/aoe.hpp>

#include "support/agree.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T>
aoe<T> layer_of(extent n = 9, unsigned seed = 1, extent d = 13, extent l = 5, extent w = 40) {
  aoe<T> layer;
  layer.down = random<parameter<T, 3>>({d, n, l}, seed, 0.3f);
  layer.up = random<parameter<T, 3>>({n, l, w}, seed + 1, 0.3f);
  layer.linear = random<parameter<T, 3>>({n, d, w}, seed + 2, 0.3f);
  layer.output = random<parameter<T, 3>>({n, w, d}, seed + 3, 0.3f);
  return layer;
}

TEMPLATE_TEST_CASE("AoE agrees with the oracle", "[aoe]", float, double) {
  auto layer = layer_of<TestType>();
  for (const extent tokens : {extent{1}, extent{30}, extent{500}}) {
    const auto x = random<tensor<TestType, 2>>({tokens, 13}, 7);
    for (const auto how : {routing::by::top_k, routing::by::top_p, routing::by::expert_choice})
      for (const auto weights : {weighting::softmax, weighting::softmax_of_all, weighting::score}) {
        layer.route.how = how;
        layer.route.weights = weights;
        CHECK(agrees(layer(x)));
      }
    layer.route.rank_softmax = true;
    layer.bias = random<parameter<TestType, 1>>({13}, 8);
  }
}

TEST_CASE("AoE computes the chosen experts alone, from the cache", "[aoe]") {
  const auto layer = layer_of<float>();
  graph g;
  const node_id y = layer(tensor<float, 2>({30, 13})).lower(g);
  const plan p = make_plan(g, y, 30, machine_options());
  CHECK(describe(p) ==
        lines{"gemm td,dnl->tnl", "L2 norm tnl->tn", "top_k tn->tn", "group td,tn->td 2 of 9", "  pick ta->ta", "  gemm td,ndw->tw",
              "  pick tab->tb", "  gemm tl,nlw->tw | silu | *", "  gemm tw,nwd->td", "  put td,tn->td"});
}

}  // namespace
