// SPDX-License-Identifier: MIT
// Compares edited layers with double sums over the experts.
#include <cstring>
#include <set>

#include <fmoe/aoe.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/peer.hpp>

#include "support/agree.hpp"
#include "support/autonomous.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 11, units = 40, many = 50, outputs = 9, tokens = 30;

template <class T>
mxd<T> mixture() {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({inputs, units}, 1, 0.3f);
  l.gate = random<parameter<T, 2>>({inputs, many}, 2, 0.3f);
  l.scales = random<parameter<T, 2>>({many, outputs}, 3);
  l.decoder = random<parameter<T, 2>>({units, outputs}, 4, 0.3f);
  l.bias = random<parameter<T, 1>>({outputs}, 5);
  l.skip = random<parameter<T, 2>>({inputs, outputs}, 6);
  l.active = 5;
  return l;
}

template <class T>
sparse_mlp<T> transcoder() {
  sparse_mlp<T> l;
  l.encoder = random<parameter<T, 2>>({inputs, units}, 1, 0.3f);
  l.decoder = random<parameter<T, 2>>({units, outputs}, 4, 0.3f);
  l.active = 5;
  return l;
}

template <extent Levels, class T>
cp_mumoe<Levels, T> hierarchy() {
  cp_mumoe<Levels, T> l;
  for (extent e = 0; e < Levels; ++e) {
    l.gate.projections[e] = random<parameter<T, 2>>({inputs, 4 + e}, 10 + static_cast<unsigned>(e));
    l.experts.experts[e] = random<parameter<T, 2>>({4 + e, 8}, 20 + static_cast<unsigned>(e));
  }
  l.experts.input = random<parameter<T, 2>>({inputs + 1, 8}, 30);
  l.experts.output = random<parameter<T, 2>>({outputs, 8}, 31);
  return l;
}

// Two heads of 900 experts each, shared or their own.
template <class T>
peer<T> neurons(bool separate) {
  const extent experts = separate ? 1800 : 900;
  peer<T> l;
  l.queries = random<parameter<T, 2>>({inputs, 2 * 2 * 5}, 1, 0.3f);
  l.keys = random<parameter<T, 4>>({2, 30, 2, 5}, 2);
  l.down = random<parameter<T, 2>>({experts, inputs}, 3, 0.3f);
  l.up = random<parameter<T, 2>>({experts, inputs}, 4);
  l.active = 3;
  return l;
}

// Adds `factor` times `more` to y.
void add(std::vector<double>& y, const std::vector<double>& more, double factor) {
  REQUIRE(y.size() == more.size());
  for (extent i = 0; i < y.size(); ++i) y[i] += factor * more[i];
}

template <class T>
double off(const tensor<T, 2>& y, const std::vector<double>& expected) {
  return relative_error(y.data(), expected);
}

template <class T>
constexpr double tolerance = std::is_same_v<T, double> ? 1e-13 : 5e-6;

// [t, o]: W_n' z of every row.
template <class T>
std::vector<double> decoded(const mxd<T>& l, const tensor<T, 2>& x, extent n) {
  const auto z = reference(l.hidden(x));
  std::vector<double> y(x.shape()[0] * outputs);
  for (extent t = 0; t < x.shape()[0]; ++t)
    for (extent o = 0; o < outputs; ++o)
      for (extent h = 0; h < units; ++h)
        y[t * outputs + o] +=
            z[t * units + h] * convert<double>(l.decoder(h, o)) * convert<double>(l.scales(n, o));
  return y;
}

TEMPLATE_TEST_CASE("an ablated expert adds nothing and nothing else changes", "[edit]", float,
                   double) {
  const auto layer = mixture<TestType>();
  const auto x = random<tensor<TestType, 2>>({tokens, inputs}, 9);
  const auto a = reference(layer.coefficients(x));
  std::vector<extent> loud;
  for (extent n = 0; n < many && loud.size() < 3; ++n) {
    double sum = 0;
    for (extent t = 0; t < tokens; ++t) sum += a[t * many + n];
    if (sum > 0) loud.push_back(n);
  }
  auto expected = reference(layer(x));
  for (const extent n : loud) {
    auto lost = decoded(layer, x, n);
    for (extent t = 0; t < tokens; ++t)
      for (extent o = 0; o < outputs; ++o) lost[t * outputs + o] *= a[t * many + n];
    add(expected, lost, -1);
  }
  const auto before = evaluate(layer(x));
  CHECK(off(evaluate(ablated(layer, loud)(x)), expected) <= tolerance<TestType>);
  CHECK(off(before, expected) > 1e-3);
  CHECK(std::memcmp(before.data(), evaluate(layer(x)).data(), before.size() * sizeof(TestType)) ==
        0);
  const auto none = evaluate(ablated(layer, {})(x));
  CHECK(std::memcmp(before.data(), none.data(), before.size() * sizeof(TestType)) == 0);
  const auto nested = evaluate(ablated(ablated(layer, {loud[0]}), {loud[1], loud[2]})(x));
  CHECK(off(nested, expected) <= tolerance<TestType>);
}

TEST_CASE("what an ablated expert's weights hold does not matter", "[edit]") {
  auto layer = mixture<float>();
  layer.skip = {};
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto expected = evaluate(ablated(layer, {7})(x));
  for (extent o = 0; o < outputs; ++o) layer.scales(7, o) = std::numeric_limits<float>::infinity();
  const auto y = evaluate(ablated(layer, {7})(x));
  CHECK(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)) == 0);
}

TEST_CASE("a selection stays one when experts are ablated", "[edit]") {
  const auto plan_of = [](const auto& layer) {
    ir::graph g;
    const ir::node_id y = as_expression(layer(argument<0, 2>{30})).lower(g);
    return describe(make_plan(g, y, 30, machine_options()));
  };
  const auto holds = [](const lines& all, std::string_view start) {
    return std::ranges::any_of(all, [&](const std::string& l) { return l.starts_with(start); });
  };
  const auto of_mxd = plan_of(ablated(mixture<float>(), {1}));
  CHECK(holds(of_mxd, "rescale"));
  CHECK(holds(of_mxd, "gather"));
  CHECK(!holds(of_mxd, "expand"));
  const auto of_aoe = plan_of(ablated(autonomous<float>(inputs), {1}));
  CHECK(holds(of_aoe, "rescale"));
  CHECK(holds(of_aoe, "group"));
  const auto of_sparse = plan_of(ablated(transcoder<float>(), {1}));
  CHECK(holds(of_sparse, "gather"));
  for (const bool separate : {false, true}) {
    const auto of_peer = plan_of(ablated(neurons<float>(separate), {1}));
    CHECK(holds(of_peer, "rescale"));
    CHECK(holds(of_peer, "sample"));
    CHECK(holds(of_peer, "gather"));
    CHECK(!holds(of_peer, "expand"));
  }
}

TEMPLATE_TEST_CASE("experts of AoE, transcoders and hierarchies are ablated", "[edit]", float,
                   double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({tokens, inputs}, 9);
  // The oracle mixes coefficients that are set to 0 by hand.
  const auto by_hand = [&](const auto& layer, extent n) {
    auto a = evaluate(layer.coefficients(x));
    for (extent t = 0; t < tokens; ++t) a(t, n) = 0;
    return reference(layer.mixed(x, a));
  };
  CHECK(off(evaluate(ablated(autonomous<T>(inputs), {2})(x)), by_hand(autonomous<T>(inputs), 2)) <=
        tolerance<T>);
  CHECK(off(evaluate(ablated(transcoder<T>(), {4})(x)), by_hand(transcoder<T>(), 4)) <=
        tolerance<T>);
  CHECK(off(evaluate(ablated(hierarchy<1, T>(), {3})(x)), by_hand(hierarchy<1, T>(), 3)) <=
        tolerance<T>);

  const auto two = hierarchy<2, T>();
  const auto a = evaluate(two.coefficients(x));
  auto b = evaluate(two.template coefficients<1>(x));
  for (extent t = 0; t < tokens; ++t) b(t, 4) = 0;
  CHECK(off(evaluate(ablated<1>(two, {4})(x)), reference(two.mixed(x, a, b))) <= tolerance<T>);
}

// True if coefficient `at` = h 900 + e of a row is of expert n, which the heads may share.
template <class T>
bool is_of(const peer<T>& l, extent at, extent n) {
  return (l.expert_count() == 900 ? at % 900 : at) == n;
}

TEMPLATE_TEST_CASE("experts of PEER are ablated, steered and rewritten", "[edit]", float, double) {
  using T = TestType;
  const auto x = random<tensor<T, 2>>({tokens, inputs}, 9);
  for (const bool separate : {false, true}) {
    const auto layer = neurons<T>(separate);
    CHECK(expert_count(layer) == (separate ? 1800 : 900));
    auto a = evaluate(layer.coefficients(x));
    CHECK(off(evaluate(layer.mixed(x, a)), reference(layer(x))) <= tolerance<T>);
    // The first expert that the second head selects for token 3.
    extent e = 0;
    while (a(3, 1, e) == 0) ++e;
    const extent n = separate ? 900 + e : e;

    std::vector<double> corrected = reference(layer(x)), steps(tokens * inputs);
    std::vector<double> mean(layer.expert_count(), 0.1);
    mean[n] = 0.7;
    for (extent t = 0; t < tokens; ++t) {
      for (extent at = 0; at < 1800; ++at)
        corrected[t * inputs + 6] +=
            4 * (is_of(layer, at, n) ? 0.7 : 0.1) * static_cast<double>(a(t, at / 900, at % 900));
      double product = 0;
      for (extent i = 0; i < inputs; ++i)
        product += convert<double>(x(t, i)) * convert<double>(layer.down(n, i));
      product = product / 2 * std::erfc(-product / std::sqrt(2.0));
      for (extent i = 0; i < inputs; ++i)
        steps[t * inputs + i] = product * convert<double>(layer.up(n, i));
    }
    CHECK(off(evaluate(rewritten(layer, 6, mean, 4)(x)), corrected) <= tolerance<T>);
    auto steered_by_hand = reference(layer(x));
    add(steered_by_hand, steps, -1.5);
    CHECK(off(evaluate(steered(layer, n, -1.5)(x)), steered_by_hand) <= tolerance<T>);

    for (extent t = 0; t < tokens; ++t)
      for (extent at = 0; at < 1800; ++at)
        if (is_of(layer, at, n)) a(t, at / 900, at % 900) = 0;
    const auto without = reference(layer.mixed(x, a));
    CHECK(off(evaluate(ablated(layer, {n})(x)), without) <= tolerance<T>);
    CHECK(off(evaluate(layer(x)), without) > 1e-3);
    CHECK(evaluate(ablated(layer, {n}).contribution_norms(x))(3, 1, e) == 0);
    CHECK_THROWS_AS(ablated(layer, {layer.expert_count()}), value_error);
  }
}

// What an ablated expert takes from each row is its contribution.
TEST_CASE("norms of contributions are those of what ablation takes", "[edit]") {
  const auto x = random<tensor<double, 2>>({tokens, inputs}, 9);
  const auto check = [&](const auto& norms, const auto& without, const auto& y, extent n) {
    const auto changed = reference(norm(row_norm::l2, y - without));
    for (extent t = 0; t < tokens; ++t) CHECK(norms(t, n) == Approx(changed[t]).margin(1e-12));
  };
  const auto one = mixture<double>();
  const auto two = hierarchy<2, double>();
  for (extent n = 0; n < 4; ++n) {
    check(evaluate(one.contribution_norms(x)), ablated(one, {n})(x), one(x), n);
    check(evaluate(two.template contribution_norms<0>(x)), ablated<0>(two, {n})(x), two(x), n);
    check(evaluate(two.template contribution_norms<1>(x)), ablated<1>(two, {n})(x), two(x), n);
  }

  // Also of a layer with an edit.
  const auto edit = ablated<1>(two, {4});
  check(evaluate(edit.template contribution_norms<0>(x)), ablated<0>(edit, {2})(x), edit(x), 2);
  for (extent t = 0; t < tokens; ++t)
    CHECK(evaluate(edit.template contribution_norms<1>(x))(t, 4) == 0);
  const auto there = steered<1>(two, 3, 0.5);
  check(evaluate(there.template contribution_norms<0>(x)), ablated<0>(there, {2})(x), there(x), 2);
  const auto moved = steered(ablated(one, {3}), 1, 2);
  check(evaluate(moved.contribution_norms(x)), ablated(moved, {2})(x), moved(x), 2);
}

TEST_CASE("pairs of Monet's are ablated, beside those deleted before", "[edit]") {
  monet_hd<float> layer;
  layer.encoder = random<parameter<float, 2>>({inputs, 20}, 1);
  layer.decoder = random<parameter<float, 2>>({20, inputs}, 2);
  layer.bias = random<parameter<float, 2>>({5, inputs}, 3);
  layer.deleted = {{0, 1}};
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto g1 = random<tensor<float, 3>>({tokens, 2, 5}, 10),
             g2 = random<tensor<float, 3>>({tokens, 2, 5}, 11);
  const std::vector<index_pair> gone{{2, 3}, {4, 4}};
  auto expected = layer;
  expected.deleted = {{0, 1}, {2, 3}, {4, 4}};
  const auto y = evaluate(ablated(layer, gone)(x, g1, g2));
  CHECK(off(y, reference(expected(x, g1, g2))) <= tolerance<float>);
  CHECK(off(y, reference(layer(x, g1, g2))) > 1e-3);
  CHECK(layer.deleted.size() == 1);
  CHECK(ablated(layer, {{2, 3}, {4, 4}}).deleted == expected.deleted);
  CHECK(ablated(layer, {{3, 1}}).deleted.back() == index_pair{3, 1});
}

TEST_CASE("hidden units of one's own", "[edit]") {
  const auto x = random<tensor<double, 2>>({tokens, inputs}, 9);
  const auto layer = mixture<double>();
  const auto z = evaluate(layer.hidden(x)), a = evaluate(layer.coefficients(x));
  const auto forward = compile(
      [&](const auto& hidden, const auto& weights) { return layer.decoded(hidden, weights); },
      arguments<2, 2>{}, tokens);
  tensor<double, 2> y({tokens, outputs});
  forward(z, a, y);
  CHECK(off(y, reference(layer.decoded(z, a))) <= tolerance<double>);
  CHECK(off(evaluate(y + einsum<"ti,io->to">(x, layer.skip)), reference(layer(x))) <=
        tolerance<double>);
  const auto chosen = autonomous<double>(inputs);
  CHECK(off(evaluate(chosen.decoded(evaluate(chosen.hidden(x)), evaluate(chosen.coefficients(x)))),
            reference(chosen(x))) <= tolerance<double>);
}

TEMPLATE_TEST_CASE("a head is rewritten (muMoE, Eq. 5)", "[edit]", float, double) {
  const auto layer = hierarchy<1, TestType>();
  const auto x = random<tensor<TestType, 2>>({tokens, inputs}, 9);
  const std::vector<double> mean{0.3, 0, 0.1, 0.7};  // not exact in float
  auto expected = reference(layer(x));
  const auto a = reference(layer.coefficients(x));
  for (extent t = 0; t < tokens; ++t)
    for (extent n = 0; n < 4; ++n) expected[t * outputs + 6] += 4 * mean[n] * a[t * 4 + n];
  CHECK(off(evaluate(rewritten(layer, 6, mean, 4)(x)), expected) <= tolerance<TestType>);

  const auto two = hierarchy<2, TestType>();
  const std::vector<double> of_second{0.3, 0, 0.1, 0.7, 0.2};
  auto corrected = reference(two(x));
  const auto b = reference(two.template coefficients<1>(x));
  for (extent t = 0; t < tokens; ++t)
    for (extent n = 0; n < 5; ++n) corrected[t * outputs + 2] -= of_second[n] * b[t * 5 + n];
  CHECK(off(evaluate(rewritten<1>(two, 2, of_second, -1)(x)), corrected) <= tolerance<TestType>);
  CHECK(off(evaluate(rewritten<0>(two, 6, mean, 0)(x)), reference(two(x))) <= tolerance<TestType>);
  CHECK_THROWS_WITH(rewritten<0>(two, 6, of_second, 4),
                    "[rewritten] there are 5 mean coefficients and 4 experts");
  CHECK_THROWS_WITH(rewritten(layer, 6, std::vector<double>(5), 4),
                    "[rewritten] there are 5 mean coefficients and 4 experts");
  CHECK_THROWS_WITH(rewritten(layer, 9, mean, 4), "[rewritten] there is no head 9 among 9");
}

TEMPLATE_TEST_CASE(
    "steering adds what the expert would (MxD), its row (transcoder), its centre (muMoE)", "[edit]",
    float, double) {
  const auto x = random<tensor<TestType, 2>>({tokens, inputs}, 9);
  const auto layer = mixture<TestType>();
  auto expected = reference(layer(x));
  add(expected, decoded(layer, x, 3), 2.5);
  CHECK(off(evaluate(steered(layer, 3, 2.5)(x)), expected) <= tolerance<TestType>);

  const auto coded = transcoder<TestType>();
  auto shifted = reference(coded(x));
  for (extent i = 0; i < shifted.size(); ++i)
    shifted[i] -= 3 * convert<double>(coded.decoder(5, i % outputs));
  CHECK(off(evaluate(steered(coded, 5, -3)(x)), shifted) <= tolerance<TestType>);

  const auto moved = hierarchy<1, TestType>();
  tensor<TestType, 2> there({tokens, inputs});
  for (extent t = 0; t < tokens; ++t)
    for (extent i = 0; i < inputs; ++i)
      there(t, i) = x(t, i) + TestType(0.5) * moved.gate.projections[0](i, 2);
  CHECK(off(evaluate(steered(moved, 2, 0.5)(x)), reference(moved(there))) <= tolerance<TestType>);
  const auto two = hierarchy<2, TestType>();
  for (extent t = 0; t < tokens; ++t)
    for (extent i = 0; i < inputs; ++i)
      there(t, i) = x(t, i) + TestType(0.5) * two.gate.projections[1](i, 4);
  CHECK(off(evaluate(steered<1>(two, 4, 0.5)(x)), reference(two(there))) <= tolerance<TestType>);
  for (extent t = 0; t < tokens; ++t)
    for (extent i = 0; i < inputs; ++i)
      there(t, i) = x(t, i) + TestType(0.5) * moved.gate.projections[0](i, 2);
  CHECK(off(evaluate(steered(moved, 2, 0.5).coefficients(x)),
            reference(moved.coefficients(there))) <= tolerance<TestType>);
}

std::string golden(const std::string& name) {
  return "tests/golden/" + name + ".weights.safetensors";
}

// Calls check(layer, expert 2 of it, width of a row) for each mixture.
void for_each_mixture(const auto& check) {
  const auto experts = load<aoe<>>(
      golden("aoe/aoe_kn"),
      {.active = 2, .activation = pointwise::silu, .metadata = {{"weighting", "paper"}}});
  check(experts, experts.expert(2), experts.down.shape()[0]);
  const auto sparse = load<moe<>>(golden("moe/moe_odd"), {.active = 2});
  check(sparse, sparse.expert(2), sparse.router.shape()[0]);
  auto latent = sparse;
  const extent d = sparse.router.shape()[0];
  latent.latent_down = random<parameter<float, 2>>({d, d}, 5, 0.3f);
  latent.latent_up = random<parameter<float, 2>>({d, d}, 6, 0.3f);
  check(latent, latent.expert(2), d);
  auto beside_zero_experts = sparse;
  beside_zero_experts.zero_router = random<parameter<float, 2>>({d, 3}, 7);
  check(beside_zero_experts, sparse.expert(2), d);
  const auto dense = load<soft_moe<>>(golden("moe/moe_dense"));
  check(
      dense, [&](const auto& x) { return einsum<"ti,io->to">(x, dense.expert(2)); },
      dense.router.shape()[0]);
}

TEST_CASE("mixtures are steered by an expert's output", "[edit]") {
  for_each_mixture([](const auto& layer, const auto& expert, extent width) {
    const auto x = random<tensor<float, 2>>({7, width}, 3);
    auto expected = reference(layer(x));
    add(expected, reference(expert(x)), -1.5);
    CHECK(off(evaluate(steered(layer, 2, -1.5)(x)), expected) <= tolerance<float>);
    CHECK_THROWS_AS(steered(layer, 50, 1), value_error);
  });
}

TEST_CASE("Monet is steered by the output of a pair", "[edit]") {
  const std::string file = golden("monet/monet_hd_topk_t1");
  auto router = load<monet_router<>>(file, {.active = 3});
  router.heads = 3;
  const auto layer = load<monet_hd<>>(file, {.activation = pointwise::gelu});
  const auto x = random<tensor<float, 2>>({5, router.keys1.shape()[0]}, 3);
  const auto g1 = router.g1(x), g2 = router.g2(x);
  auto expected = reference(layer(x, g1, g2));
  add(expected, reference(layer.expert(1, 2)(x)), 0.5);
  CHECK(off(evaluate(steered(layer, {1, 2}, 0.5)(x, g1, g2)), expected) <= tolerance<float>);
}

TEST_CASE("the norms of the contributions of mixtures", "[edit]") {
  for_each_mixture([](const auto& layer, const auto& expert, extent width) {
    const auto x = random<tensor<float, 2>>({7, width}, 3);
    const auto norms = reference(layer.contribution_norms(x)), a = reference(layer.coefficients(x)),
               y = reference(norm(row_norm::l2, expert(x)));
    CHECK(agrees(layer.contribution_norms(x)));
    const extent n = a.size() / 7;
    for (extent t = 0; t < 7; ++t) CHECK(norms[t * n + 2] == Approx(std::abs(a[t * n + 2]) * y[t]));
  });
}

TEST_CASE("zero experts add x, and can be left out", "[edit]") {
  auto layer = load<moe<>>(golden("moe/moe_odd"), {.active = 3});
  const extent d = layer.router.shape()[0], n = layer.output.shape()[0];
  layer.zero_router = random<parameter<float, 2>>({d, 3}, 7);
  layer.scale = 2;
  const auto x = random<tensor<float, 2>>({7, d}, 3);
  const auto a = evaluate(layer.coefficients(x)), norms = evaluate(layer.contribution_norms(x)),
             lengths = evaluate(ablated(layer, {n + 1}).contribution_norms(x));
  auto expected = reference(layer(x));
  bool is_chosen = false;
  for (extent t = 0; t < 7; ++t) {
    double squares = 0;
    for (extent i = 0; i < d; ++i) {
      squares += std::pow(x(t, i), 2);
      expected[t * d + i] -= 2 * static_cast<double>(a(t, n + 1)) * static_cast<double>(x(t, i));
    }
    CHECK(norms(t, n + 1) == Approx(2 * std::abs(a(t, n + 1)) * std::sqrt(squares)));
    CHECK(norms(t, n + 2) == Approx(2 * std::abs(a(t, n + 2)) * std::sqrt(squares)));
    CHECK(lengths(t, n + 1) == 0);
    is_chosen = is_chosen || a(t, n + 1) != 0;
  }
  CHECK(is_chosen);
  CHECK(off(evaluate(ablated(layer, {n + 1})(x)), expected) <= tolerance<float>);
  // Coefficients of all experts are all taken, however many a token has by itself.
  const auto dense = random<tensor<float, 2>>({7, n + 3}, 8);
  CHECK(agrees(layer.mixed(x, dense)));
  std::vector<double> sum(x.size());
  for (extent e = 0; e < n + 3; ++e) {
    const auto y = e < n ? reference(layer.expert(e)(x)) : std::vector<double>(x.begin(), x.end());
    for (extent i = 0; i < sum.size(); ++i)
      sum[i] += 2 * static_cast<double>(dense(i / d, e)) * y[i];
  }
  CHECK(off(evaluate(layer.mixed(x, dense)), sum) <= tolerance<float>);
  CHECK_THROWS_AS(layer.expert(n), value_error);
  CHECK_THROWS_AS(steered(layer, n + 1, 1)(x), value_error);
}

namespace of_a_user {

// A layer whose expert n adds a constant row.
struct rows_of_a_table {
  parameter<float, 2> gate, table;

  auto coefficients(const operand_of<2> auto& x) const { return einsum<"ti,in->tn">(x, gate); }
  auto mixed(const operand_of<2> auto&, const operand_of<2> auto& a) const {
    return einsum<"tn,no->to">(a, table);
  }
  auto contribution_norms(const operand_of<2> auto&, const operand_of<2> auto& a) const {
    return abs(a) * norm(row_norm::l2, table);
  }
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
};

auto expert_output(const rows_of_a_table& layer, const operand_of<2> auto&, std::size_t n) {
  return as_expression(sliced<0>(layer.table, n));
}

}  // namespace of_a_user

TEST_CASE("a layer of one's own is edited with an expert_output of one's own", "[edit]") {
  const of_a_user::rows_of_a_table layer{random<parameter<float, 2>>({4, 6}, 1),
                                         random<parameter<float, 2>>({6, 3}, 2)};
  const auto x = random<tensor<float, 2>>({5, 4}, 3);
  const auto y = evaluate(layer(x)), moved = evaluate(steered(layer, 1, 2)(x));
  for (extent t = 0; t < 5; ++t)
    for (extent o = 0; o < 3; ++o) CHECK(moved(t, o) == Approx(y(t, o) + 2 * layer.table(1, o)));
  CHECK(evaluate(ablated(layer, {0, 1, 2, 3, 4, 5})(x))(0, 0) == 0);
  const auto a = evaluate(layer.coefficients(x)),
             norms = evaluate(ablated(layer, {2}).contribution_norms(x));
  for (extent n = 0; n < 6; ++n) {
    double squares = 0;
    for (extent o = 0; o < 3; ++o) squares += std::pow(layer.table(n, o), 2);
    CHECK(norms(4, n) == Approx(n == 2 ? 0 : std::abs(a(4, n)) * std::sqrt(squares)));
  }
}

TEST_CASE("edits of edits, compiled, share the packed weights", "[edit]") {
  const auto layer = mixture<double>();
  const auto x = random<tensor<double, 2>>({tokens, inputs}, 9);
  const auto both = steered(ablated(layer, {1, 2, 3}), 4, 1.5);
  auto expected = reference(ablated(layer, {1, 2, 3})(x));
  add(expected, decoded(layer, x, 4), 1.5);
  const auto forward = compile(both, tokens);
  tensor<double, 2> y({tokens, outputs});
  forward(x, y);
  CHECK(off(y, expected) <= tolerance<double>);
  CHECK(std::memcmp(y.data(), evaluate(both(x)).data(), y.size() * sizeof(double)) == 0);
  CHECK(both.layer.layer.gate.shared_storage()->same_elements(*layer.gate.shared_storage()));
}

TEST_CASE("experts are any list of whole numbers, and means any list of numbers", "[edit]") {
  const auto layer = hierarchy<1, double>();
  const auto x = random<tensor<double, 2>>({tokens, inputs}, 9);
  const auto same = [&](const auto& a, const auto& b) {
    const auto y = evaluate(a(x)), z = evaluate(b(x));
    return std::memcmp(y.data(), z.data(), y.size() * sizeof(double)) == 0;
  };
  CHECK(same(ablated(layer, {1, 3}), ablated(layer, std::vector<int>{1, 3})));
  CHECK(same(ablated(layer, {1, 3}), ablated(layer, std::set<long>{3, 1})));
  CHECK_THROWS_WITH(ablated(layer, std::vector{-1}), "[ablated] there is no expert -1 among 4");
  const std::vector<double> mean{0.5, 0.25, 0, 1};
  const auto raised = rewritten(layer, 2, mean, 1.5);
  CHECK(same(raised, rewritten(layer, 2, {0.5, 0.25, 0, 1}, 1.5)));
  CHECK(same(raised, rewritten(layer, 2, std::vector<float>(mean.begin(), mean.end()), 1.5)));
  CHECK(same(raised, rewritten(layer, 2, tensor<float, 1>({4}, {0.5f, 0.25f, 0, 1}), 1.5)));
}

TEST_CASE("an expert's output is that of the layer with its coefficient alone", "[edit]") {
  auto layer = hierarchy<1, double>();
  layer.input_norm.weight = random<parameter<double, 1>>({inputs}, 40);
  layer.input_norm.bias = random<parameter<double, 1>>({inputs}, 41);
  const auto x = random<tensor<double, 2>>({tokens, inputs}, 9);
  tensor<double, 2> one({tokens, 4});
  for (extent t = 0; t < tokens; ++t) one(t, 2) = 1;
  CHECK(off(evaluate(expert_output(layer, x, 2)), reference(layer.mixed(x, one))) <=
        tolerance<double>);
}

TEST_CASE("experts that are not there", "[edit]") {
  const auto layer = mixture<float>();
  CHECK_THROWS_WITH(ablated(layer, {1, 50}), "[ablated] there is no expert 50 among 50");
  CHECK_THROWS_WITH(steered(layer, 50, 1), "[steered] there is no expert 50 among 50");
  CHECK(expert_count(layer) == many);
  CHECK(expert_count<1>(hierarchy<2, float>()) == 5);
}

}  // namespace
