// SPDX-License-Identifier: MIT
// A program that opens both fmoe and std and names everything without either: no name of fmoe is
// ambiguous, and where std has a function of the same name, fmoe's is chosen.
#include <fmoe/analysis.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>

#include <algorithm>
#include <cmath>
#include <complex>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <ranges>
#include <string>
#include <tuple>
#include <valarray>
#include <vector>

#include "support/catch.hpp"

using namespace fmoe;
using namespace std;

namespace {

constexpr size_t tokens = 3, inputs = 4, units = 5, experts = 6, outputs = 2, width = 3;

// Of this shape, with small numbers of both signs.
template <size_t Rank>
parameter<float, Rank> weights(const array<size_t, Rank>& shape) {
  parameter<float, Rank> p(shape);
  for (size_t i = 0; i < p.size(); ++i) p.data()[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  return p;
}

template <size_t Rank>
parameter<float, Rank> weights(const size_t (&shape)[Rank]) {
  return weights(to_array(shape));
}

tensor<float, 2> rows() { return weights({tokens, inputs}); }

// A class that converts to numbers makes compilers look at the operators of both namespaces.
struct count {
  size_t n;
  constexpr operator size_t() const { return n; }
};
static_assert(count{7} - size_t{2} == 5 && 2.0 * count{7} == 14);

// Evaluated and compiled the layer does the same, and its cost and plan are known.
template <class Layer>
void runs(const Layer& layer) {
  const auto x = rows();
  const auto y = evaluate(layer(x));
  CHECK(ranges::all_of(span(y.data(), y.size()), [](float v) { return isfinite(v); }));
  const auto forward = compile(layer, tokens);
  tensor<float, 2> compiled_y(y.shape());
  forward(x, compiled_y);
  CHECK(ranges::equal(span(y.data(), y.size()), span(compiled_y.data(), compiled_y.size())));
  CHECK(cost(layer(x)).factorized.parameters > 0);
  CHECK(!explain(layer(x)).text.empty());
}

mxd<> small_mxd() {
  mxd<> l;
  l.encoder = weights({inputs, units});
  l.encoder_bias = weights({units});
  l.linear = weights({inputs, units});
  l.gate = weights({inputs, experts});
  l.scales = weights({experts, outputs});
  l.decoder = weights({units, outputs});
  l.active = 2;
  l.activation = pointwise::gelu;
  return l;
}

template <class Experts>
mumoe<Experts> with_gate(Experts e) {
  mumoe<Experts> l;
  for (auto& projection : l.gate.projections) projection = weights({inputs, experts});
  l.experts = std::move(e);  // clang warns of a move without std
  return l;
}

template <class Monet>
void runs_monet(const Monet& layer) {
  monet_router<> router;
  router.keys1 = router.keys2 = weights({inputs, 2 * width});
  router.heads = 2;
  router.active = 2;
  const auto x = rows();
  CHECK(evaluate(router(x)).size() == tokens * 4 * width);
  const auto g1 = evaluate(router.g1(x)), g2 = evaluate(router.g2(x));
  const auto y = evaluate(layer(x, g1, g2));
  const auto forward = compile(layer, arguments<2, 3, 3>{}, tokens);
  tensor<float, 2> compiled_y(y.shape());
  forward(x, g1, g2, compiled_y);
  CHECK(ranges::equal(span(y.data(), y.size()), span(compiled_y.data(), compiled_y.size())));
  const index_pair pair{0, 1};
  CHECK(evaluate(ablated(layer, span(&pair, 1))(x, g1, g2)).shape() == y.shape());
  CHECK(evaluate(layer.expert(0, 1)(x)).shape() == y.shape());

  expert_domains domains(width, 1);
  domains.add(g1, g2, 0);
  CHECK(domains.tokens(0) == tokens);
  expert_correlation correlation(width);
  correlation.add(g1, g2, span<const double>(vector<double>{0, 1, 2}));
  CHECK(abs(correlation.correlation({0, 0})) <= 1);
}

}  // namespace

TEST_CASE("expressions are built under both namespaces", "[using_namespaces]") {
  const tensor<float, 2> x = rows(), w = weights({inputs, units});
  const parameter<float, 1> b = weights({units});
  const auto e = einsum<"ti,io->to">(x, w);
  for (const auto& y : {evaluate(relu(e)),
                        evaluate(gelu(e)),
                        evaluate(gelu_tanh(e)),
                        evaluate(silu(e)),
                        evaluate(sigmoid(e)),
                        evaluate(squared_relu(e)),
                        evaluate(exp(e)),
                        evaluate(sqrt(e * e)),
                        evaluate(tanh(e)),
                        evaluate(log(exp(e))),
                        evaluate(abs(e)),
                        evaluate(max(e, e)),
                        evaluate(min(e, 0.5)),
                        evaluate(max(e, relu(e))),
                        evaluate(clamp(e, -1, 1)),
                        evaluate(e / exp(e)),
                        evaluate(e / 2),
                        evaluate(where(e, e, -e)),
                        evaluate(inverse_sqrt(e * e + 1.0)),
                        evaluate(apply(pointwise::relu, e)),
                        evaluate(threshold(e, 0.5)),
                        evaluate(softmax(e)),
                        evaluate(entmax(e)),
                        evaluate(sparse_mixer(e)),
                        evaluate(layer_norm(e)),
                        evaluate(rms_norm(e)),
                        evaluate(clamped_rms_norm(e)),
                        evaluate(top_k(e, 2)),
                        evaluate(top_p(softmax(e), 0.5, weighting::score)),
                        evaluate(top_k(e, all)),
                        evaluate(expert_choice(e, softmax(e), weighting::score)),
                        evaluate(nonzeros(e)),
                        evaluate(add_bias(e, b)),
                        evaluate(add_if(true, e, b)),
                        evaluate(multiply_if(true, e, b)),
                        evaluate(choose(true, e, 2.0 * e)),
                        evaluate(-e + b),
                        evaluate(e - b),
                        evaluate(1.0 - e),
                        evaluate(sized(e, {tokens, units}))})
    CHECK(y.shape() == array{tokens, units});
  CHECK(evaluate(apply(pointwise::scale, x, 2)).size() == x.size());
  tensor<float, 2> changing = rows();  // for which std::apply could be the better match
  CHECK(evaluate(apply(pointwise::relu, changing)).size() == changing.size());
  CHECK(evaluate(concat<1>(x, x)).shape() == array{tokens, 2 * inputs});
  CHECK(evaluate(append_one(x)).shape() == array{tokens, inputs + 1});
  CHECK(evaluate(bounded_softmax(e, weights({tokens}))).size() == tokens * units);
}

TEST_CASE("layers run under both namespaces", "[using_namespaces]") {
  runs(small_mxd());

  sparse_mlp<> sparse;
  sparse.encoder = weights({inputs, units});
  sparse.decoder = weights({units, outputs});
  sparse.active = 2;
  runs(sparse);

  moe<> mixture;
  mixture.router = weights({inputs, experts});
  mixture.activated = mixture.linear = weights({experts, inputs, width});
  mixture.output = weights({experts, width, inputs});
  mixture.route.how = routing::by::top_k;
  runs(mixture);
  runs(mixture.expert(0));

  soft_moe<> soft;
  soft.router = weights({inputs, experts});
  soft.experts = weights({experts, inputs, outputs});
  runs(soft);

  mov<> vectors;
  vectors.scales = weights({experts, inputs});
  vectors.decoder = weights({inputs, outputs});
  CHECK(evaluate(vectors(rows(), weights({tokens, experts}))).size() == tokens * outputs);

  aoe<> autonomous;
  autonomous.down = weights({inputs, experts, width});
  autonomous.up = weights({experts, width, width});
  autonomous.linear = weights({experts, inputs, width});
  autonomous.output = weights({experts, width, inputs});
  runs(autonomous);

  peer<> retrieval;
  retrieval.keys = weights({1, 3, 2, inputs / 2});
  retrieval.down = retrieval.up = weights({9, inputs});
  retrieval.active = 2;
  runs(retrieval);

  runs(with_gate(cp_experts<>{
      {weights({experts, width})}, weights({inputs, width}), weights({outputs, width})}));
  runs(with_gate(tr_experts<>{{weights({width, experts, width})},
                              weights({width, inputs, width}),
                              weights({width, outputs, width})}));
  runs(with_gate(tucker_experts<>{{weights({experts, width})},
                                  weights({inputs, width}),
                                  weights({outputs, width}),
                                  weights({width, width, width})}));
  runs(with_gate(dense_experts<>{weights({experts, inputs, outputs})}));

  random_stream random(1);
  const expert_sizes<1> sizes{{experts}, inputs, inputs};
  cp_mumoe_block<> block;
  block.gate = initial_gate(sizes);
  block.first = block.second = initial_cp(sizes, width, random);
  runs(block);

  monet_hd<> horizontal;
  horizontal.encoder = weights({inputs, 2 * width});
  horizontal.decoder = weights({2 * width, inputs});
  horizontal.bias = weights({width, inputs});
  horizontal.heads = 2;
  runs_monet(horizontal);

  monet_vd<> vertical;
  vertical.encoder1 = vertical.encoder2 = weights({inputs, width});
  vertical.decoder11 = vertical.decoder12 = vertical.decoder21 = vertical.decoder22 =
      weights({width, inputs / 2});
  vertical.bias1 = vertical.bias2 = weights({width, inputs / 2});
  vertical.heads = 2;
  runs_monet(vertical);
}

TEST_CASE("experts are counted and edited under both namespaces", "[using_namespaces]") {
  const auto layer = small_mxd();
  const auto x = rows();
  runs(ablated(layer, {1}));
  runs(steered(layer, 1, 0.5));
  CHECK(expert_count(layer) == experts);
  CHECK(evaluate(expert_output(layer, x, 0)).size() == tokens * outputs);

  const auto a = evaluate(layer.coefficients(x));
  expert_statistics statistics(experts);
  statistics.add(a);
  runs(rewritten(layer, 0, statistics.mean_coefficients(), 1));
  expert_load load_of_experts(experts);
  load_of_experts.add(a, a);
  CHECK(entropy(load_of_experts.load_share()) >= 0);
  top_tokens tokens_of_experts(experts, 2);
  tokens_of_experts.add(a, 0);
  CHECK(tokens_of_experts.of(0).size() <= 2);
  const vector<double> before{1, 1}, after{0.5, 1};
  CHECK(polysemanticity(accuracy_loss(before, after)) >= 0);
}

TEST_CASE("layers are saved and loaded under both namespaces", "[using_namespaces]") {
  const filesystem::path file =
      filesystem::temp_directory_path() / "fmoe_using_namespaces.safetensors";
  save(small_mxd(), file);
  const auto layer = load<mxd<>>(file, {.active = 2});
  CHECK(layer.encoder.shape() == array{inputs, units});
  filesystem::remove(file);
}

TEST_CASE("arrays become tensors under both namespaces", "[using_namespaces]") {
  vector<float> v(tokens * inputs);
  const auto borrowed_rows = borrow(v, array{tokens, inputs});
  CHECK(flattened(borrowed_rows).shape() == borrowed_rows.shape());
  const auto p = weights({inputs, units});
  CHECK(viewed<3>(p, {inputs, 1, units}).size() == p.size());
  CHECK(to_tensor(v).size() == v.size());
  CHECK(static_cast<float>(bf16(1.f)) + static_cast<float>(f16(1.f)) == 2);
  CHECK(string(name_of(dtype::bfloat16)) == "bfloat16");
}
