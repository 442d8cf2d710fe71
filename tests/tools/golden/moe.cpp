// SPDX-License-Identifier: MIT
#include "moe.hpp"

#include <numeric>

#include <fmoe/aoe.hpp>
#include <fmoe/expert_load.hpp>

namespace fmoe::golden {
namespace {

// Rows of `found` hold, in any order, the numbers of `listed` rows up to the first -1.
void compare_lists(const std::string& what, const std::vector<std::vector<extent>>& found, const std::vector<std::int64_t>& listed,
                   report& r) {
  if (found.empty() || listed.size() % found.size() != 0) return r.fault(what + " lists another number of rows");
  const extent width = listed.size() / found.size();
  for (extent row = 0; row < found.size(); ++row) {
    const auto first = listed.begin() + static_cast<std::ptrdiff_t>(row * width);
    const std::set<std::int64_t> wanted(first, std::find(first, first + static_cast<std::ptrdiff_t>(width), -1));
    if (wanted == std::set<std::int64_t>(found[row].begin(), found[row].end())) continue;
    return r.fault(what + " has others in row " + std::to_string(row));
  }
}

// The columns of each row that are not 0; of each column the rows.
template <class T>
std::vector<std::vector<extent>> places(const tensor<T, 2>& t, bool by_column) {
  std::vector<std::vector<extent>> result(t.shape()[by_column ? 1 : 0]);
  for (extent row = 0; row < t.shape()[0]; ++row)
    for (extent n = 0; n < t.shape()[1]; ++n)
      if (t(row, n) != 0) result[by_column ? n : row].push_back(by_column ? row : n);
  return result;
}

template <class T>
void compare_load(golden_case& c, report& r, const tensor<T, 2>& chosen, const tensor<T, 2>& scores) {
  expert_load load(chosen.shape()[1]);
  load.add(chosen, scores);
  const double alpha = c.text("alpha") ? c.number<double>("alpha") : 0.01;
  const auto compare = [&](const char* name, const std::vector<double>& found) {
    if (!c.has(name)) return;
    tensor<T, 2> rounded({1, found.size()});
    for (extent i = 0; i < found.size(); ++i) rounded(0, i) = static_cast<T>(found[i]);
    const auto expected = c.rows<double>(name);
    r.compare(name, rounded, tensor<double, 2>({1, expected.size()}, std::span<const double>(expected.data(), expected.size())));
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
      one.add(tensor<T, 2>({1, n}), tensor<T, 2>({1, n}, std::span<const T>(scores.data() + t * n, n)));
      each.push_back(one.confidence_entropy());
    }
    compare("ent_conf_token", each);
  }
}

template <class T, template <class> class Layer>
void judge_in(golden_case& c, report& r, const char* scores_name) {
  auto layer = load<Layer<T>>(c.weights(), {});
  io::metadata_reader said(c.metadata(), c.file());
  Layer<T>::describe(layer, said);
  const auto x = c.rows<T>("x");
  const auto d = layer.output.shape();
  for (const auto& [key, length] : {std::pair("n", d[0]), {"w", d[1]}, {"d", d[2]}, {"t", x.shape()[0]}})
    if (c.text(key) && c.number<extent>(key) != length) throw not_understood(std::string("the metadata has another ") + key);

  r.compare("y", evaluate(layer(x)), c.rows<double>("y64"));
  const auto scores = evaluate(layer.scores(x)), weights = evaluate(layer.weights(x)), chosen = evaluate(layer.chosen(x));
  if (c.has(scores_name)) r.compare(scores_name, scores, c.rows<double>(scores_name));
  if (c.has("weights")) r.compare("weights", weights, c.rows<double>("weights"));
  if (c.has("selected")) compare_lists("selected", places(chosen, layer.route.how == routing::by::expert_choice), c.integers("selected"), r);
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
  io::metadata_reader said(c.metadata(), c.file());
  soft_moe<T>::describe(layer, said);
  const auto x = c.rows<T>("x");
  r.compare("y", evaluate(layer(x)), c.rows<double>("y64"));
  if (c.has("logits")) r.compare("logits", evaluate(einsum<"ti,in->tn">(x, layer.router)), c.rows<double>("logits"));
  if (c.has("weights")) r.compare("weights", evaluate(layer.weights(x)), c.rows<double>("weights"));
  c.ignore("y");
}

}  // namespace

void judge_aoe(golden_case& c, report& r) {
  if (c.required("kind") != "aoe") throw not_understood("kind " + c.required("kind"));
  judge_as<aoe>(c, r, "norms");
}

void judge_moe(golden_case& c, report& r) {
  const std::string kind = c.required("kind");
  if (kind == "moe" || kind == "moe_factorized") return judge_as<moe>(c, r, "logits");
  if (kind != "dense") throw not_understood("kind " + kind);
  golden_case again = c;
  judge_dense_in<float>(again, r);
  judge_dense_in<double>(c, r);
}

}  // namespace fmoe::golden
