// SPDX-License-Identifier: MIT
#include "moe.hpp"
#include "gradients.hpp"
#include "over_ranks.hpp"
#include "value_of.hpp"

#include <cstdint>
#include <utility>

#include <fmoe/analysis/expert_load.hpp>
#include <fmoe/aoe.hpp>
#include <fmoe/moe.hpp>

namespace fmoe::golden {
namespace {

// The chosen ones come best first, and -1 after them: [t, ...] experts of each token, or [n, ...]
// tokens of each expert. The ranked numbers may differ in their last bits in float, so there only
// the set of the chosen counts.
template <class T>
void compare_selected(golden_case& c, report& r, const tensor<T, 2>& chosen,
                      const tensor<T, 2>& ranked, bool by_column) {
  const extent rows = chosen.shape()[by_column ? 1 : 0], others = chosen.shape()[by_column ? 0 : 1];
  const auto listed = c.integers("selected");
  if (rows == 0 || listed.size() % rows != 0)
    return r.fault("selected lists another number of rows");
  for (extent row = 0; row < rows; ++row) {
    const auto at = [&](const tensor<T, 2>& t, std::int64_t k) {
      return by_column ? t(k, row) : t(row, k);
    };
    std::vector<std::int64_t> best;
    for (std::int64_t k = 0; std::cmp_less(k, others); ++k)
      if (at(chosen, k) != 0) best.push_back(k);
    std::ranges::stable_sort(
        best, [&](std::int64_t x, std::int64_t y) { return at(ranked, x) > at(ranked, y); });
    best.resize(std::max<extent>(best.size(), listed.size() / rows), -1);
    std::vector<std::int64_t> wanted(
        listed.begin() + static_cast<std::ptrdiff_t>(row * (listed.size() / rows)),
        listed.begin() + static_cast<std::ptrdiff_t>((row + 1) * (listed.size() / rows)));
    if constexpr (std::is_same_v<T, float>) {
      std::ranges::sort(best);
      std::ranges::sort(wanted);
    }
    if (best != wanted)
      return r.fault("selected has others, or another order, in row " + std::to_string(row));
  }
}

// Requires the metadata that decides a result.
void require(const golden_case& c, std::initializer_list<const char*> keys) {
  for (const char* key : keys) c.required(key);
}
void require_routing(const golden_case& c) {
  require(c, {"strategy", "weighting", "activation", "select_on"});
  const std::string strategy = c.required("strategy");
  require(c, {strategy == "topk" ? "K" : strategy == "topp" ? "P" : "capacity"});
}

template <class T>
void compare_load(golden_case& c, report& r, const tensor<T, 2>& chosen,
                  const tensor<T, 2>& scores) {
  expert_load load(chosen.shape()[1]);
  load.add(chosen, scores);
  const double alpha = c.text("alpha") ? c.number<double>("alpha") : 0.01;
  const auto compare = [&](const char* name, const std::vector<double>& found) {
    if (!c.has(name)) return;
    tensor<T, 2> rounded({1, found.size()});
    for (extent i = 0; i < found.size(); ++i) rounded(0, i) = static_cast<T>(found[i]);
    const auto expected = c.rows<double>(name);
    r.compare(name, rounded,
              tensor<double, 2>({1, expected.size()},
                                std::span<const double>(expected.data(), expected.size())));
  };
  compare("load", load.load());
  compare("load_share", load.load_share());
  compare("prob_mean", load.mean_probability());
  compare("ent_load", {entropy(load.load())});
  compare("ent_load_share", {entropy(load.load_share())});
  compare("ent_conf", {load.confidence_entropy()});
  compare("aux_loss", {load.auxiliary_loss(load.load(), alpha)});
  compare("aux_loss_share", {load.auxiliary_loss(load.load_share(), alpha)});
  if (c.has("ent_conf_token")) {
    std::vector<double> each;
    for (extent t = 0; t < scores.shape()[0]; ++t) {
      expert_load one(chosen.shape()[1]);
      const extent n = chosen.shape()[1];
      one.add(tensor<T, 2>({1, n}),
              tensor<T, 2>({1, n}, std::span<const T>(scores.data() + t * n, n)));
      each.push_back(one.confidence_entropy());
    }
    compare("ent_conf_token", each);
  }
}

template <class T, template <class> class Layer>
void judge_in(golden_case& c, report& r, const char* scores_name) {
  load_options needed{.active = 1};  // until the case has said it
  for (const char* key : {"activation", "weighting"})
    if (const auto found = c.metadata().find(key); found != c.metadata().end())
      needed.metadata[key] = found->second;
  auto layer = load<Layer<T>>(c.weights(), needed);
  const io::metadata_reader said(c.metadata(), c.file());
  Layer<T>::describe(layer, said);
  const auto x = c.rows<T>("x");
  const auto d = layer.output.shape();
  for (const auto& [key, length] :
       {std::pair("n", d[0]), {"w", d[1]}, {"d", d[2]}, {"t", x.shape()[0]}})
    if (c.text(key) && c.number<extent>(key) != length)
      throw not_understood(std::string("the metadata has another ") + key);

  r.compare("y", value_of(layer(x)), c.rows<double>("y64"));
  judge_gradients(c, r, layer, x);
  judge_ranks(r, layer, x, c.rows<double>("y64"));
  const auto scores = value_of(layer.scores(x)), weights = value_of(layer.coefficients(x)),
             chosen = value_of(layer.chosen(x));
  if (c.has(scores_name)) r.compare(scores_name, scores, c.rows<double>(scores_name));
  if (c.has("weights")) r.compare("weights", weights, c.rows<double>("weights"));
  const bool by_expert = layer.route.how == routing::by::expert_choice;
  const auto ranked = by_expert && layer.route.rank_softmax ? value_of(softmax(scores)) : scores;
  if (c.has("selected")) compare_selected(c, r, chosen, ranked, by_expert);
  compare_load(c, r, chosen, scores);
  c.ignore("y");
}

template <template <class> class Layer>
void judge_as(golden_case& c, report& r, const char* scores_name) {
  golden_case again = c;
  judge_in<float, Layer>(again, r, scores_name);
  judge_in<double, Layer>(c, r, scores_name);
}

template <class T>
void judge_dense_in(golden_case& c, report& r) {
  auto layer = load<soft_moe<T>>(c.weights(), {});
  const io::metadata_reader said(c.metadata(), c.file());
  soft_moe<T>::describe(layer, said);
  const auto x = c.rows<T>("x");
  r.compare("y", value_of(layer(x)), c.rows<double>("y64"));
  judge_gradients(c, r, layer, x);
  judge_ranks(r, layer, x, c.rows<double>("y64"));
  if (c.has("logits"))
    r.compare("logits", value_of(einsum<"ti,in->tn">(x, layer.router)), c.rows<double>("logits"));
  if (c.has("weights"))
    r.compare("weights", value_of(layer.coefficients(x)), c.rows<double>("weights"));
  c.ignore("y");
}

}  // namespace

void judge_aoe(golden_case& c, report& r) {
  if (c.required("kind") != "aoe") throw not_understood("kind " + c.required("kind"));
  require_routing(c);
  require(c, {"norm"});
  judge_as<aoe>(c, r, "norms");
}

void judge_moe(golden_case& c, report& r) {
  const std::string kind = c.required("kind");
  if (kind == "moe" || kind == "moe_factorized") {
    require_routing(c);
    return judge_as<moe>(c, r, "logits");
  }
  if (kind != "dense") throw not_understood("kind " + kind);
  require(c, {"phi"});
  golden_case again = c;
  judge_dense_in<float>(again, r);
  judge_dense_in<double>(c, r);
}

}  // namespace fmoe::golden
