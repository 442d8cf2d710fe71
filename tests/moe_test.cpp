// SPDX-License-Identifier: MIT
// Checks the baselines, and the identities that connect them with MxD.
#include <fmoe/moe.hpp>
#include <fmoe/mxd.hpp>

#include "support/agree.hpp"
#include "support/mixture.hpp"
#include "support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

template <class T>
moe<T> layer_of(bool factorized) {
  constexpr extent d = 14, n = 6, l = 4, w = 10;
  moe<T> layer;
  layer.router = random<parameter<T, 2>>({d, n}, 1);
  if (factorized) {
    layer.down = random<parameter<T, 3>>({d, n, l}, 2, 0.3f);
    layer.up = random<parameter<T, 3>>({n, l, w}, 3, 0.3f);
  } else {
    layer.activated = random<parameter<T, 3>>({n, d, w}, 2, 0.3f);
  }
  layer.linear = random<parameter<T, 3>>({n, d, w}, 4, 0.3f);
  layer.output = random<parameter<T, 3>>({n, w, d}, 5, 0.3f);
  return layer;
}

TEMPLATE_TEST_CASE("sparse mixtures agree with the oracle", "[moe]", float, double) {
  const auto x = random<tensor<TestType, 2>>({70, 14}, 7);
  for (const bool factorized : {false, true}) {
    auto layer = layer_of<TestType>(factorized);
    for (const auto how : {routing::by::top_k, routing::by::top_p, routing::by::expert_choice}) {
      layer.route.how = how;
      CHECK(agrees(layer(x)));
    }
  }
}

TEMPLATE_TEST_CASE("a mixture is the sum of its experts", "[moe]", float, double) {
  using T = TestType;
  const double tolerance = sizeof(T) == 4 ? 4e-6 : 1e-14;
  const auto x = random<tensor<T, 2>>({20, 14}, 7);
  for (const bool factorized : {false, true}) {
    auto layer = layer_of<T>(factorized);
    layer.activation = pointwise::relu;
    const auto a = evaluate(layer.coefficients(x));
    std::vector<double> y;
    for (extent n = 0; n < 6; ++n)
      add_expert(y, [&](extent t) { return a(t, n); }, evaluate(layer.expert(n)(x)));
    CHECK(relative_error(evaluate(layer(x)).data(), y) <= tolerance);
    CHECK_THROWS_AS(layer.expert(6), value_error);
  }
  const soft_moe<T> soft{random<parameter<T, 2>>({14, 6}, 1),
                         random<parameter<T, 3>>({6, 14, 11}, 2)};
  const auto a = evaluate(soft.coefficients(x));
  std::vector<double> y;
  for (extent n = 0; n < 6; ++n)
    add_expert(
        y, [&](extent t) { return a(t, n); },
        evaluate(einsum<"ti,io->to">(x, evaluate(soft.expert(n)))));
  CHECK(relative_error(evaluate(soft(x)).data(), y) <= tolerance);
  CHECK_THROWS_AS(soft.expert(6), value_error);
}

// The forms of released models.
template <class T>
std::vector<std::pair<const char*, moe<T>>> released_forms() {
  constexpr extent d = 14, n = 6, w = 10, s = 5;
  std::vector<std::pair<const char*, moe<T>>> forms;
  const auto add = [&](const char* name) -> moe<T>& {
    return forms.emplace_back(name, layer_of<T>(false)).second;
  };
  const auto share = [&](moe<T>& l) {
    l.shared.activated = random<parameter<T, 2>>({d, s}, 11, 0.3f);
    l.shared.linear = random<parameter<T, 2>>({d, s}, 12, 0.3f);
    l.shared.output = random<parameter<T, 2>>({s, d}, 13, 0.3f);
  };
  add("OLMoE").route.weights = weighting::softmax_of_all;
  moe<T>& qwen = add("Qwen2-MoE");
  share(qwen);
  qwen.shared_gate = random<parameter<T, 1>>({d}, 14);
  moe<T>& deepseek = add("DeepSeek-V3");
  share(deepseek);
  deepseek.balance = random<parameter<T, 1>>({n}, 15);
  deepseek.route.scoring = score_function::sigmoid;
  deepseek.route.weights = weighting::normalized;
  deepseek.route.groups = 3;
  deepseek.route.active_groups = 2;
  deepseek.scale = 2.5;
  moe<T>& llama = add("Llama 4");
  share(llama);
  llama.route.active = 1;
  llama.route.scoring = score_function::sigmoid;
  llama.route.weights = weighting::score;
  llama.weighs_input = true;
  moe<T>& gpt = add("gpt-oss");
  gpt.router_bias = random<parameter<T, 1>>({n}, 16);
  gpt.activated_bias = random<parameter<T, 2>>({n, w}, 17);
  gpt.linear_bias = random<parameter<T, 2>>({n, w}, 18);
  gpt.output_bias = random<parameter<T, 2>>({n, d}, 19);
  gpt.limit = 0.5;
  moe<T>& nemotron = add("Nemotron-H");
  nemotron.linear = {};
  nemotron.shared.activated = random<parameter<T, 2>>({d, s}, 20, 0.3f);
  nemotron.shared.output = random<parameter<T, 2>>({s, d}, 21, 0.3f);
  nemotron.activation = nemotron.shared.activation = pointwise::squared_relu;
  for (const auto form : {glu_limit::before_activation, glu_limit::after_activation}) {
    moe<T>& limited = add(form == glu_limit::before_activation ? "GLM-5-Next" : "Step-3.5");
    share(limited);
    limited.limit = 0.3;
    limited.shared.limit = 0.2;
    limited.limit_form = limited.shared.limit_form = form;
  }
  moe<T>& super = add("Nemotron 3 Super");
  constexpr extent e = 8;
  share(super);
  super.latent_down = random<parameter<T, 2>>({d, e}, 22, 0.3f);
  super.latent_up = random<parameter<T, 2>>({e, d}, 23, 0.3f);
  super.activated = random<parameter<T, 3>>({n, e, w}, 24, 0.3f);
  super.linear = random<parameter<T, 3>>({n, e, w}, 25, 0.3f);
  super.output = random<parameter<T, 3>>({n, w, e}, 26, 0.3f);
  super.output_bias = random<parameter<T, 2>>({n, e}, 27);
  super.scale = 2.5;
  moe<T>& low = forms.emplace_back("a low-rank form of a latent", super).second;
  low.activated = {};
  low.down = random<parameter<T, 3>>({e, n, 4}, 28, 0.3f);
  low.up = random<parameter<T, 3>>({n, 4, w}, 29, 0.3f);
  for (const bool is_shared : {false, true}) {
    moe<T>& longcat = add(is_shared ? "zero experts of all parts" : "LongCat-Flash");
    longcat.zero_router = random<parameter<T, 2>>({d, 4}, 30);
    longcat.balance = random<parameter<T, 1>>({n}, 31, 0.1f);
    longcat.zero_balance = random<parameter<T, 1>>({4}, 32, 0.1f);
    longcat.route.active = 3;
    longcat.route.scoring = score_function::softmax;
    longcat.route.weights = weighting::score;
    longcat.scale = 6;
    if (!is_shared) continue;
    share(longcat);
    longcat.shared_gate = random<parameter<T, 1>>({d}, 33);
    longcat.router_bias = random<parameter<T, 1>>({n}, 34);
    longcat.output_bias = random<parameter<T, 2>>({n, d}, 35);
    longcat.balance = {};
    longcat.zero_balance = {};
    longcat.route = {.how = routing::by::top_p};
  }
  moe<T>& signed_scores = add("zero experts and scores of both signs");
  signed_scores.zero_router = random<parameter<T, 2>>({d, 4}, 36);
  signed_scores.route = {.active = 8, .weights = weighting::score};
  moe<T>& phi = add("Phi-3.5-MoE");
  phi.route.scoring = score_function::sparse_mixer;
  phi.route.weights = weighting::score;
  phi.route.jitter = 0.3;
  return forms;
}

TEMPLATE_TEST_CASE("the forms of released models are sums of their experts", "[moe]", float,
                   double) {
  using T = TestType;
  const double tolerance = sizeof(T) == 4 ? 6e-6 : 1e-14;
  const auto x = random<tensor<T, 2>>({40, 14}, 7);
  for (const auto& form : released_forms<T>()) {
    INFO(form.first);
    const moe<T>& layer = form.second;
    CHECK(agrees(layer(x)));
    const auto a = evaluate(layer.coefficients(x));
    std::vector<double> y(x.size());
    for (extent n = 0; n < 6; ++n) {
      auto input = x;
      for (extent t = 0; t < 40; ++t)
        for (extent i = 0; i < 14 && layer.weighs_input; ++i) input(t, i) *= a(t, n);
      const auto weight = [&](extent t) {
        return layer.weighs_input ? T(1) : static_cast<T>(layer.scale) * a(t, n);
      };
      add_expert(y, weight, evaluate(layer.expert(n)(input)));
    }
    for (extent n = 6; n < a.shape()[1]; ++n)
      add_expert(y, [&](extent t) { return static_cast<T>(layer.scale) * a(t, n); }, x);
    if (!layer.shared.output.empty()) {
      const auto gate = layer.shared_gate.empty()
                            ? tensor<T, 1>()
                            : evaluate(sigmoid(einsum<"td,d->t">(x, layer.shared_gate)));
      add_expert(
          y, [&](extent t) { return gate.empty() ? T(1) : gate(t); }, evaluate(layer.shared(x)));
    }
    CHECK(relative_error(evaluate(layer(x)).data(), y) <= tolerance);
  }
}

TEST_CASE("a limit bounds the hidden units of an expert in its form", "[moe]") {
  const std::vector<double> gates{-30, -1, 0.5, 2, 3, 30}, units{-4, -1, 0.5, 1, 2.5, 5};
  const double L = 2;
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  const auto wanted = [&](glu_limit form, double g, double u) {
    const double most = std::min(g, L), bounded = std::clamp(u, -L, L);
    if (form == glu_limit::before_activation) return silu(most) * bounded;
    if (form == glu_limit::after_activation) return std::min(silu(g), L) * bounded;
    return most / (1 + std::exp(-1.702 * most)) * (bounded + 1);
  };
  glu_expert<double> one;
  one.activated = one.linear = parameter<double, 2>({2, 1});
  one.activated(0, 0) = one.linear(1, 0) = 1;
  one.output = parameter<double, 2>({1, 1});
  one.output(0, 0) = 1;
  one.limit = L;
  for (const auto form :
       {glu_limit::swiglu_oai, glu_limit::before_activation, glu_limit::after_activation}) {
    one.limit_form = form;
    for (const double g : gates)
      for (const double u : units) {
        tensor<double, 2> x({1, 2});
        x(0, 0) = g;
        x(0, 1) = u;
        CHECK(std::abs(evaluate(one(x))(0, 0) - wanted(form, g, u)) < 1e-14);
      }
  }
}

TEST_CASE("the forms of released models compute the chosen experts alone", "[moe]") {
  for (const auto& [name, layer] : released_forms<float>()) {
    INFO(name);
    ir::graph g;
    const ir::node_id y = layer(tensor<float, 2>({30, 14})).lower(g);
    const auto steps = describe(make_plan(g, y, 30, machine_options()));
    CHECK(std::ranges::count_if(steps,
                                [](const std::string& s) { return s.starts_with("group "); }) == 1);
    CHECK(std::ranges::none_of(
        steps, [](const std::string& s) { return s.find("->tnw") != std::string::npos; }));
  }
}

TEST_CASE("a token that zero experts have takes no others", "[moe]") {
  auto layer = layer_of<float>(false);
  layer.route.active = 3;
  layer.zero_router = random<parameter<float, 2>>({14, 4}, 5);
  layer.zero_balance = parameter<float, 1>({4});
  layer.balance = parameter<float, 1>({6});
  layer.route.scoring = score_function::softmax;
  layer.route.weights = weighting::score;
  layer.zero_balance(2) = layer.zero_balance(3) = 10;
  layer.balance(5) = 10;  // so all tokens have expert 5 and two zero experts
  for (extent i = 0; i < 5 * 14 * 10; ++i)
    layer.linear.data()[i] = std::numeric_limits<float>::quiet_NaN();
  const auto x = random<tensor<float, 2>>({30, 14}, 7);
  CHECK(std::ranges::none_of(evaluate(layer(x)), [](float y) { return std::isnan(y); }));
  layer.zero_balance = {};
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);
}

TEST_CASE("a clamped mixture has no weighed input and a linear part, and groups divide the experts",
          "[moe]") {
  auto layer = released_forms<float>()[3].second;
  layer.limit = 1;
  const tensor<float, 2> x({3, 14});
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);
  layer = released_forms<float>()[5].second;
  layer.limit = 1;
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);
  layer = released_forms<float>()[2].second;
  layer.route.groups = 4;
  CHECK_THROWS_AS(evaluate(layer(x)), value_error);
}

TEST_CASE("a sparse mixer weighs two experts by itself", "[moe]") {
  auto layer = layer_of<float>(false);
  layer.route.scoring = score_function::sparse_mixer;
  layer.route.weights = weighting::score;
  layer.route.jitter = 0.2;
  const auto x = random<tensor<float, 2>>({40, 14}, 7);
  const auto a = evaluate(layer.coefficients(x)), chosen = evaluate(layer.chosen(x));
  CHECK(std::ranges::equal(a, evaluate(sparse_mixer(layer.scores(x), 0.2))));
  for (extent i = 0; i < a.size(); ++i) CHECK(chosen.data()[i] == (a.data()[i] == 0 ? 0 : 1));
  const auto refuses = [&](auto change) {
    auto other = layer;
    change(other);
    CHECK_THROWS_AS(evaluate(other(x)), value_error);
  };
  refuses([](auto& l) { l.route.active = 3; });
  refuses([](auto& l) { l.route.weights = weighting::softmax; });
  refuses([](auto& l) { l.route.groups = 2; });
  refuses([](auto& l) { l.balance = parameter<float, 1>({6}); });
  refuses([](auto& l) { l.route.jitter = 1; });
  layer.route.how = routing::by::top_p;  // which asks for no such function
  layer.route.active = 3;
  CHECK(std::ranges::equal(evaluate(layer.coefficients(x)),
                           evaluate(top_p(layer.scores(x), layer.route.mass, weighting::score))));
}

TEST_CASE("a sparse mixture computes the chosen experts alone", "[moe]") {
  ir::graph g;
  const ir::node_id y = layer_of<float>(false)(tensor<float, 2>({30, 14})).lower(g);
  CHECK(describe(make_plan(g, y, 30, machine_options())) ==
        lines{"gemm td,dn->tn", "top_k tn->tn", "group td,tn->td 2 of 6", "  pick ta->ta",
              "  gemm td,ndw->tw", "  gemm td,ndw->tw | silu | *", "  gemm tw,nwd->td",
              "  put td,tn->td"});
}

TEMPLATE_TEST_CASE("the dense mixture agrees with the oracle and never makes a token's own weight",
                   "[moe]", float, double) {
  soft_moe<TestType> layer;
  layer.router = random<parameter<TestType, 2>>({13, 6}, 1);
  layer.experts = random<parameter<TestType, 3>>({6, 13, 11}, 2);
  for (const double alpha : {1.0, 1.5}) {
    layer.alpha = alpha;
    CHECK(agrees(layer(random<tensor<TestType, 2>>({30, 13}, 3))));
  }
}

TEST_CASE("scores that are all -infinity make NaN of their own token alone", "[moe]") {
  auto scores = random<tensor<float, 2>>({3, 6}, 1);
  routing route;
  for (const auto how : {routing::by::top_k, routing::by::top_p}) {
    route.how = how;
    const auto before = evaluate(route(scores));
    auto low = tensor<float, 2>({3, 6}, std::span<const float>(scores.data(), scores.size()));
    for (extent n = 0; n < 6; ++n) low(1, n) = -std::numeric_limits<float>::infinity();
    const auto after = evaluate(route(low));
    CHECK(std::isnan(after(1, 0)));
    for (extent n = 0; n < 6; ++n)
      CHECK((after(0, n) == before(0, n) && after(2, n) == before(2, n)));
  }
}

TEST_CASE("a GLU is an MxD of rank-1 experts: C = I and coefficients without selection (MxD, A.4)",
          "[moe]") {
  constexpr extent i = 9, h = 12, o = 7;
  const auto x = random<tensor<double, 2>>({20, i}, 1);
  mxd<double> experts;
  experts.encoder = random<parameter<double, 2>>({i, h}, 2);
  experts.decoder = random<parameter<double, 2>>({h, o}, 3);
  experts.gate = random<parameter<double, 2>>({i, o}, 4);
  experts.scales = parameter<double, 2>({o, o});
  for (extent n = 0; n < o; ++n) experts.scales(n, n) = 1;
  experts.active = all;
  const auto z = gelu(einsum<"ti,ih->th">(x, experts.encoder));
  const auto glu = evaluate(relu(einsum<"ti,io->to">(x, experts.gate)) *
                            einsum<"th,ho->to">(z, experts.decoder));
  CHECK(relative_error(evaluate(experts(x)).data(), {glu.data(), glu.data() + glu.size()}) < 1e-14);
  // Expert n is W_n = D diag(c_n), which has one column, so its rank is 1.
  const auto one = evaluate(einsum<"no,ho->nho">(experts.scales, experts.decoder));
  for (extent n = 0; n < o; ++n)
    for (extent k = 0; k < h; ++k)
      for (extent c = 0; c < o; ++c) CHECK((c == n || one(n, k, c) == 0));
}

TEST_CASE("MoV unfolds its experts along the hidden units: W_n = diag(c_n) D", "[moe]") {
  const auto z = random<tensor<double, 2>>({20, 12}, 1), a = random<tensor<double, 2>>({20, 5}, 2);
  const mov<double> layer{random<parameter<double, 2>>({5, 12}, 3),
                          random<parameter<double, 2>>({12, 7}, 4)};
  const auto weights = evaluate(einsum<"nh,ho->nho">(layer.scales, layer.decoder));
  const auto third = evaluate(layer.expert(3));
  for (extent i = 0; i < third.size(); ++i)
    CHECK(third.data()[i] == weights.data()[3 * 12 * 7 + i]);
  CHECK_THROWS_AS(layer.expert(5), value_error);
  const auto naive = evaluate(einsum<"tn,th,nho->to">(a, z, weights));
  CHECK(relative_error(evaluate(layer(z, a)).data(), {naive.data(), naive.data() + naive.size()}) <
        1e-14);
  ir::graph g;
  const ir::node_id y = layer(z, a).lower(g);
  CHECK(describe(make_plan(g, y, 20, machine_options())) ==
        lines{"gemm tn,nh->th | *", "gemm th,ho->to"});
}

}  // namespace
