// SPDX-License-Identifier: MIT
// Plans of gradients: no expert is made, the backward pass reads the products of the forward pass,
// and a selection stays one.
#include <fmoe/aoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/planner/cost.hpp>

#include "../support/catch.hpp"
#include "../support/limits.hpp"
#include "../support/oracle.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// The results of a step: y, dx and the gradients of all parameters.
template <class Layer>
ir::node_list both_passes(ir::graph& g, const Layer& layer) {
  const argument<0, 2> x(256);
  const argument<1, 2> dy(256);
  const gradient_inputs in{{x.lower(g)}, {layer(x).lower(g)}, {dy.lower(g)}, {dy.lower(g)}};
  return gradient_graph(g, in, trained_parameters(released_parameters(only_listed(layer)))).roots;
}

template <class Layer>
lines plan_of_gradients(const Layer& layer) {
  ir::graph g;
  const ir::node_list results = both_passes(g, layer);
  return describe(make_plan(g, results, 256, on_this_cpu<float>({})));
}

extent count(const lines& plan, const std::string& start) {
  return static_cast<extent>(std::ranges::count_if(
      plan, [&](const std::string& line) { return line.starts_with(start); }));
}

// Four products of the forward pass and as many of the backward pass make no expert: an expert of
// 96 x 48 numbers is nowhere, and no sum over tokens has three labels. The rows of the gate are
// those of the screen, which are not made again.
TEST_CASE("the gradients of MxD cost what was selected", "[gradients]") {
  mxd<> l;
  l.encoder = random<parameter<float, 2>>({64, 96}, 1);
  l.gate = random<parameter<float, 2>>({64, 2048}, 2);
  l.scales = random<parameter<float, 2>>({2048, 48}, 3);
  l.decoder = random<parameter<float, 2>>({96, 48}, 4);
  l.active = 8;
  CHECK(plan_of_gradients(l) ==
        lines{"screen ti,in->tn | relu", "gemm ti,ih->th", "pointwise th->th | gelu",
              "gemm th,ho->to", "gather tn,no->to", "pointwise to->to | *", "pointwise to->to | *",
              "pointwise to->to | *", "gemm to,ho->th", "pointwise th->th | gelu' | *",
              "reduce ti->ti", "gemm th,ih->ti", "sample tn,to,no->tn", "gather tn,ni->ti | +",
              "selection_sum tn,to->no", "token_sum th,to->ho", "token_sum ti,th->ih",
              "selection_sum tn,ti->in"});
}

cost_figures cost(const ir::graph& g, const ir::node_list& results) {
  return planner::cost_of(make_program(g, results, on_this_cpu<float>({})), 256, sizeof(float));
}

// Each product of the forward pass has two in the backward pass, one for each operand. A product
// that makes an expert, or one of the forward pass that is made again, costs more.
template <class Layer>
void check_cost(const Layer& layer) {
  ir::graph forward, both;
  const cost_figures alone = cost(forward, layer(argument<0, 2>(256)).lower(forward)),
                     together = cost(both, both_passes(both, layer));
  CAPTURE(alone.multiply_adds, together.multiply_adds, together.once);
  CHECK(together.multiply_adds <= 3.05 * alone.multiply_adds);
  CHECK(together.once == alone.once);
}

TEST_CASE("both passes cost three times the forward pass", "[gradients]") {
  const auto drawn = [](const auto& shape, unsigned seed) {
    constexpr extent rank = std::tuple_size_v<std::remove_cvref_t<decltype(shape)>>;
    return random<parameter<float, rank>>(shape, seed);
  };
  using two = std::array<extent, 2>;
  using three = std::array<extent, 3>;
  cp_mumoe<2> cp;
  cp.gate.projections = {drawn(two{64, 32}, 1), drawn(two{64, 24}, 2)};
  cp.experts.experts = {drawn(two{32, 48}, 3), drawn(two{24, 48}, 4)};
  cp.experts.input = drawn(two{65, 48}, 5);
  cp.experts.output = drawn(two{40, 48}, 6);
  check_cost(cp);
  tr_mumoe<1> tr;
  tr.gate.projections = {drawn(two{64, 32}, 1)};
  tr.experts.experts = {drawn(three{4, 32, 4}, 2)};
  tr.experts.input = drawn(three{4, 64, 5}, 3);
  tr.experts.output = drawn(three{5, 40, 4}, 4);
  check_cost(tr);
  mxd<> decoders;
  decoders.encoder = drawn(two{64, 96}, 1);
  decoders.gate = drawn(two{64, 2048}, 2);
  decoders.scales = drawn(two{2048, 48}, 3);
  decoders.decoder = drawn(two{96, 48}, 4);
  decoders.active = 8;
  check_cost(decoders);
}

TEST_CASE("the gradients of a muMoE read the products of the forward pass", "[gradients]") {
  cp_mumoe<1> cp;
  cp.gate.projections = {random<parameter<float, 2>>({64, 32}, 1)};
  cp.gate.layer_norm = false;
  cp.experts.experts = {random<parameter<float, 2>>({32, 16}, 2)};
  cp.experts.input = random<parameter<float, 2>>({64, 16}, 3);
  cp.experts.output = random<parameter<float, 2>>({48, 16}, 4);
  const lines plan = plan_of_gradients(cp);
  for (const auto& line : plan) UNSCOPED_INFO(line);
  // Each product with a parameter comes once forward and once backward.
  for (const char* product :
       {"gemm ti,in->tn", "gemm ti,ir->tr", "gemm tn,nr->tr", "gemm tr,or->to", "gemm to,or->tr",
        "gemm tr,ir->ti", "gemm tr,nr->tn", "gemm tn,in->ti", "token_sum to,tr->or",
        "token_sum tn,tr->nr", "token_sum ti,tr->ir", "token_sum ti,tn->in"}) {
    INFO(product);
    CHECK(count(plan, product) == 1);
  }
  CHECK(count(plan, "gemm") == 8);
  CHECK(count(plan, "token_sum") == 4);
}

template <class Layer>
void check_compact(const Layer& layer, extent experts, extent width) {
  ir::graph g;
  const ir::node_list results = both_passes(g, layer);
  const planner::program p = make_program(g, results, on_this_cpu<float>({}));
  for (const planner::operation& o : p.operations) {
    const planner::value& v = p[o.out.value];
    INFO(planner::text_of(p, o));
    if (v.per_token()) CHECK(v.size() < experts * width);
  }
}

extent holds(const lines& plan, const std::string& text) {
  return static_cast<extent>(std::ranges::count_if(
      plan, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
}

TEST_CASE("both passes of a sparse mixture run the selected experts only", "[gradients]") {
  moe<> l;
  l.router = random<parameter<float, 2>>({64, 32}, 1);
  l.activated = random<parameter<float, 3>>({32, 64, 24}, 2);
  l.linear = random<parameter<float, 3>>({32, 64, 24}, 3);
  l.output = random<parameter<float, 3>>({32, 24, 64}, 4);
  const lines plan = plan_of_gradients(l);
  for (const auto& line : plan) UNSCOPED_INFO(line);
  // Three products with the experts forward and three backward, each on the rows that selected an
  // expert; one selection, and one product with the router.
  CHECK(count(plan, "  gemm") == 6);
  CHECK(count(plan, "gemm td,dn->tn") == 1);
  CHECK(count(plan, "gemm") == 1);
  CHECK(count(plan, "top_k") == 1);
  CHECK(count(plan, "expert_sum") == 3);
  CHECK(count(plan, "token_sum") == 0);
  check_compact(l, 32, 24);
  l.route.weights = weighting::softmax_of_all;
  check_compact(l, 32, 24);
  CHECK(holds(plan_of_gradients(l), "  gemm") == 6);
}

TEST_CASE("both passes of an autonomous mixture run the selected experts only", "[gradients]") {
  aoe<> l;
  l.down = random<parameter<float, 3>>({64, 32, 8}, 1);
  l.up = random<parameter<float, 3>>({32, 8, 24}, 2);
  l.linear = random<parameter<float, 3>>({32, 64, 24}, 3);
  l.output = random<parameter<float, 3>>({32, 24, 64}, 4);
  const lines plan = plan_of_gradients(l);
  for (const auto& line : plan) UNSCOPED_INFO(line);
  // The scores take what C is for all experts; it is made once.
  CHECK(count(plan, "gemm td,dnl->tnl") == 1);
  CHECK(count(plan, "gemm") == 1);
  CHECK(count(plan, "  gemm") == 7);
  CHECK(count(plan, "expert_sum") == 4);
  CHECK(count(plan, "token_sum") == 0);
  check_compact(l, 32, 24);
}

TEST_CASE("both passes of PEER read the rows of the selected experts", "[gradients]") {
  peer<> l;
  l.keys = random<parameter<float, 4>>({3, 32, 2, 16}, 1);
  l.queries = random<parameter<float, 2>>({64, 2 * 3 * 16}, 1);
  l.active = 4;
  for (const extent tables : {extent{1}, extent{3}}) {
    l.down = random<parameter<float, 2>>({tables * 1024, 64}, 2);
    l.up = random<parameter<float, 2>>({tables * 1024, 64}, 3);
    const lines plan = plan_of_gradients(l);
    for (const auto& line : plan) UNSCOPED_INFO(line);
    CHECK(count(plan, "sample") == 2);
    CHECK(count(plan, "gather") == 2);
    CHECK(count(plan, "selection_sum") == 2);
    CHECK(count(plan, "unpair") == 1);
    CHECK(count(plan, "expand") == 0);
    ir::graph g;
    const ir::node_list results = both_passes(g, l);
    const planner::program p = make_program(g, results, on_this_cpu<float>({}));
    for (const planner::operation& o : p.operations) {
      const planner::value& v = p[o.out.value];
      INFO(planner::text_of(p, o));
      if (v.per_token() && !v.selection) CHECK(v.size() < 1024);
    }
  }
}

}  // namespace
