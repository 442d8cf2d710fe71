// SPDX-License-Identifier: MIT
// What the plans of both passes of every layer have in common: no expert is made, each selection of
// the forward pass is made once and screened where the forward pass screens it, and its products
// are not made again.
#include <fmoe/aoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
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

constexpr extent tokens = 256;

auto drawn(const auto& shape) {
  constexpr extent rank = std::tuple_size_v<std::remove_cvref_t<decltype(shape)>>;
  return random<parameter<float, rank>>(shape, 1);
}
template <extent Rank>
using shape_of = std::array<extent, Rank>;

// The graphs of y = f(x) and of both passes.
struct two_graphs {
  ir::graph forward, both;
  ir::node_list y, all;

  explicit two_graphs(const auto& f)
      : y(f(argument<0, 2>(tokens)).lower(forward)),
        all(gradients_of(f)) {}

  // y, dx and the gradients of all parameters.
  ir::node_list gradients_of(const auto& f) {
    const ir::node_id x = argument<0, 2>(tokens).lower(both),
                      root = f(argument<0, 2>(tokens)).lower(both),
                      dy = argument<1, 2>(tokens).lower(both);
    std::vector<ir::node_id> wanted{x};
    for (const ir::node_id id : both.ids())
      if (const auto* l = get_if<ir::leaf_node>(&both[id].op))
        if (l->parameter && l->argument < 0 && !l->copied) wanted.push_back(id);
    ir::node_list results(root);
    for (const auto& found : differentiate(both, {root}, {dy}, wanted))
      if (found) results.push_back(*found);
    return results;
  }
};

lines plan_of(const ir::graph& g, const ir::node_list& results) {
  return describe(make_plan(g, results, tokens, on_this_cpu<float>({})));
}

extent count(const lines& plan, const std::vector<std::string>& kinds) {
  return static_cast<extent>(std::ranges::count_if(plan, [&](const std::string& line) {
    const std::string text = line.substr(std::min(line.find_first_not_of(' '), line.size()));
    return std::ranges::any_of(kinds, [&](const auto& k) { return text.starts_with(k + ' '); });
  }));
}

struct expected {
  extent selections = 0, screens = 0;
  extent expert = 0;     // numbers that an expert takes if it is made
  double ratio = 3.001;  // both passes cost at most so much of the forward pass
};

void check(const auto& f, const expected& e) {
  const two_graphs g(f);
  const lines forward = plan_of(g.forward, g.y), both = plan_of(g.both, g.all);
  for (const auto& line : both) UNSCOPED_INFO(line);
  const std::vector<std::string> screens{"screen"},
      selections{"screen", "top_k", "top_p", "product_top_k", "nonzeros", "expert_choice"};
  CHECK(count(forward, selections) == e.selections);
  CHECK(count(both, selections) == e.selections);
  CHECK(count(forward, screens) == e.screens);
  CHECK(count(both, screens) == e.screens);

  const auto program = [](const ir::graph& made, const ir::node_list& results) {
    return make_program(made, results, on_this_cpu<float>({}));
  };
  const planner::program alone = program(g.forward, g.y), together = program(g.both, g.all);
  const cost_figures of_forward = planner::cost_of(alone, tokens, sizeof(float)),
                     of_both = planner::cost_of(together, tokens, sizeof(float));
  CAPTURE(of_forward.multiply_adds, of_both.multiply_adds);
  CHECK(of_both.multiply_adds <= e.ratio * of_forward.multiply_adds);
  CHECK(of_both.once == of_forward.once);

  extent largest = 0;  // parameter
  for (const planner::value& v : together.values)
    if (v.leaf && v.parameter) largest = std::max(largest, v.size());
  for (const planner::operation& o : together.operations) {
    const planner::value& v = together[o.out.value];
    INFO(planner::text_of(together, o));
    if (v.per_token() && !v.selection) CHECK(v.size() < e.expert);
    if (!v.per_token()) CHECK(v.size() <= largest);
  }
}

TEST_CASE("both passes of MxD and of transcoders screen once", "[gradients]") {
  mxd<> l;
  l.encoder = drawn(shape_of<2>{64, 96});
  l.gate = drawn(shape_of<2>{64, 2048});
  l.scales = drawn(shape_of<2>{2048, 48});
  l.decoder = drawn(shape_of<2>{96, 48});
  l.active = 8;
  const auto layer = [&](const auto& x) { return l(x); };
  check(layer, {1, 1, 96 * 48});
  l.linear = drawn(shape_of<2>{64, 96});
  l.linear_bias = drawn(shape_of<1>{96});
  l.gate_bias = drawn(shape_of<1>{2048});
  l.skip = drawn(shape_of<2>{64, 48});
  check(layer, {1, 1, 96 * 48});
  sparse_mlp<> t;
  t.encoder = drawn(shape_of<2>{64, 2048});
  t.decoder = drawn(shape_of<2>{2048, 48});
  t.skip = drawn(shape_of<2>{64, 48});
  t.active = 8;
  check([&](const auto& x) { return t(x); }, {1, 1, 64 * 48});
}

// Whatever weights the kept scores get, they are selected once.
TEST_CASE("a plain top_k of scores is selected once in both passes", "[gradients]") {
  const auto gate = drawn(shape_of<2>{64, 2048}), table = drawn(shape_of<2>{2048, 48});
  for (const weighting w :
       {weighting::score, weighting::softmax, weighting::relu, weighting::one}) {
    INFO("weighting " << static_cast<int>(w));
    check(
        [&](const auto& x) {
          return einsum<"tn,no->to">(top_k(einsum<"ti,in->tn">(x, gate), 8, w), table);
        },
        {1, 1, 64 * 48});
  }
  const auto few = drawn(shape_of<2>{64, 32}), rows = drawn(shape_of<2>{32, 48});
  for (const weighting w : {weighting::score, weighting::softmax_of_all}) {
    INFO("weighting " << static_cast<int>(w));
    const expected once{1, 0, 64 * 48, 4};
    const auto mixed = [&](const auto& a) { return einsum<"tn,no->to">(a, rows); };
    const auto scores = [&](const auto& x) { return einsum<"ti,in->tn">(x, few); };
    check([&](const auto& x) { return mixed(top_k(scores(x), 4, w)); }, once);
    check([&](const auto& x) { return mixed(top_p(scores(x), 0.5, w)); }, once);
    check([&](const auto& x) { return mixed(expert_choice(scores(x), scores(x), w)); }, once);
  }
}

TEST_CASE("both passes of muMoEs make no expert", "[gradients]") {
  cp_mumoe<2> cp;
  cp.gate.projections = {drawn(shape_of<2>{64, 32}), drawn(shape_of<2>{64, 24})};
  cp.experts.experts = {drawn(shape_of<2>{32, 48}), drawn(shape_of<2>{24, 48})};
  cp.experts.input = drawn(shape_of<2>{65, 48});
  cp.experts.output = drawn(shape_of<2>{40, 48});
  check([&](const auto& x) { return cp(x); }, {0, 0, 64 * 40, 3.05});
  tr_mumoe<1> tr;
  tr.gate.projections = {drawn(shape_of<2>{64, 32})};
  tr.experts.experts = {drawn(shape_of<3>{4, 32, 4})};
  tr.experts.input = drawn(shape_of<3>{4, 64, 5});
  tr.experts.output = drawn(shape_of<3>{5, 40, 4});
  check([&](const auto& x) { return tr(x); }, {0, 0, 64 * 40, 3.05});
}

TEST_CASE("both passes of Monet make no expert and select once", "[gradients]") {
  constexpr extent d = 64, s = 24, m = 8, p = 2;
  monet_router<> router;
  router.keys1 = drawn(shape_of<2>{d, p * s});
  router.keys2 = drawn(shape_of<2>{d, p * s});
  router.heads = p;
  router.active = 4;
  monet_hd<> hd;
  hd.encoder = drawn(shape_of<2>{d, s * m});
  hd.encoder_bias = drawn(shape_of<1>{s * m});
  hd.decoder = drawn(shape_of<2>{s * m, d});
  hd.bias = drawn(shape_of<2>{s, d});
  check([&](const auto& x) { return hd(x, router.g1(x), router.g2(x)); }, {2, 0, d * s * m, 3.05});
  monet_vd<> vd;
  constexpr extent h = s * m / 2;
  for (auto* e : {&vd.encoder1, &vd.encoder2}) *e = drawn(shape_of<2>{d, h});
  for (auto* b : {&vd.encoder_bias1, &vd.encoder_bias2}) *b = drawn(shape_of<1>{h});
  for (auto* v : {&vd.decoder11, &vd.decoder12, &vd.decoder21, &vd.decoder22})
    *v = drawn(shape_of<2>{h, d / 2});
  for (auto* b : {&vd.bias1, &vd.bias2}) *b = drawn(shape_of<2>{s, d / 2});
  check([&](const auto& x) { return vd(x, router.g1(x), router.g2(x)); }, {2, 0, d * s * m, 3.05});
}

TEST_CASE("both passes of mixtures run the selected experts and select once", "[gradients]") {
  constexpr extent d = 64, n = 32, w = 24, low = 8;
  const expected once{1, 0, n * w, 3.05};
  moe<> mixture;
  mixture.router = drawn(shape_of<2>{d, n});
  mixture.activated = drawn(shape_of<3>{n, d, w});
  mixture.linear = drawn(shape_of<3>{n, d, w});
  mixture.output = drawn(shape_of<3>{n, w, d});
  aoe<> autonomous;
  autonomous.down = drawn(shape_of<3>{d, n, low});
  autonomous.up = drawn(shape_of<3>{n, low, w});
  autonomous.linear = drawn(shape_of<3>{n, d, w});
  autonomous.output = drawn(shape_of<3>{n, w, d});
  for (const weighting how : {weighting::softmax, weighting::softmax_of_all, weighting::score}) {
    INFO("weighting " << static_cast<int>(how));
    mixture.route.weights = autonomous.route.weights = how;
    check([&](const auto& x) { return mixture(x); }, once);
    check([&](const auto& x) { return autonomous(x); }, once);
  }
}

TEST_CASE("both passes of PEER read the selected rows and select once", "[gradients]") {
  peer<> l;
  l.keys = drawn(shape_of<4>{3, 32, 2, 16});
  l.queries = drawn(shape_of<2>{64, 2 * 3 * 16});
  l.active = 4;
  for (const extent tables : {extent{1}, extent{3}}) {
    l.down = drawn(shape_of<2>{tables * 1024, 64});
    l.up = drawn(shape_of<2>{tables * 1024, 64});
    check([&](const auto& x) { return l(x); }, {1, 0, 1024, 3.05});
  }
}

}  // namespace
