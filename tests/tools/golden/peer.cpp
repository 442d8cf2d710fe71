// SPDX-License-Identifier: MIT
#include <cstdint>

#include "gradients.hpp"
#include "over_ranks.hpp"
#include "peer.hpp"
#include "value_of.hpp"

#include <fmoe/io/layer_settings.hpp>
#include <fmoe/peer.hpp>

namespace fmoe::golden {
namespace {

bool flag(const golden_case& c, const std::string& key) {
  const std::string text = c.required(key);
  if (text == "True" || text == "1") return true;
  if (text == "False" || text == "0") return false;
  throw not_understood("the metadata has " + key + " = " + text);
}

void check_size(const golden_case& c, const std::string& key, extent found) {
  if (c.number<extent>(key) != found)
    throw not_understood("the metadata has " + key + " = " + c.required(key) +
                         " and the files have " + std::to_string(found));
}

// Turns [t, h, l, s] into [l t h, s], as in the files.
template <class T>
tensor<T, 2> lists_first(const tensor<T, 4>& scores) {
  const auto [t, h, l, s] = scores.shape();
  tensor<T, 2> r({l * t * h, s});
  for (extent a = 0; a < t; ++a)
    for (extent b = 0; b < h; ++b)
      for (extent c = 0; c < l; ++c)
        for (extent d = 0; d < s; ++d) r((c * t + a) * h + b, d) = scores(a, b, c, d);
  return r;
}

template <class T>
tensor<T, 2> rows(const tensor<T, 3>& t) {
  return tensor<T, 2>({t.shape()[0] * t.shape()[1], t.shape()[2]}, t.shared_storage());
}

// Returns the values of the selected experts as rows of n.
tensor<double, 2> dense(const std::vector<std::int64_t>& selected, const tensor<double, 2>& values,
                        extent n) {
  tensor<double, 2> r({values.shape()[0], n});
  if (selected.size() != values.size())
    throw not_understood("selected has another shape than what belongs to it");
  for (extent k = 0; k < selected.size(); ++k) {
    if (!std::in_range<extent>(selected[k]) || static_cast<extent>(selected[k]) >= n)
      throw not_understood("there is no such expert");
    r(k / values.shape()[1], selected[k]) = values.data()[k];
  }
  return r;
}

template <class T>
peer<T> layer_in(const golden_case& c) {
  auto layer = load<peer<T>>(
      c.weights(), {.active = c.number<extent>("k"),
                    .activation = io::activation_named(c.required("activation"), c.file()),
                    .metadata = {{"weighting", c.required("score_activation")}}});
  layer.candidates = c.number<extent>("product_key_topk");
  const std::string scores = c.required("score_activation");
  if (scores != "softmax" && scores != "relu") throw not_understood("score_activation " + scores);
  layer.weights = scores == "relu" ? weighting::relu : weighting::softmax;
  const auto [h, s, l, k] = layer.keys.shape();
  check_size(c, "heads", h);
  check_size(c, "s", s);
  check_size(c, "dim_key", k);
  check_size(c, "d", layer.down.shape()[1]);
  check_size(c, "N", layer.down.shape()[0] / (flag(c, "separate_embed_per_head") ? h : 1));
  if (flag(c, "pre_rmsnorm") == layer.scale.empty())
    throw not_understood("pre_rmsnorm and the tensors contradict each other");
  return layer;
}

template <class T>
void judge_in(golden_case& c, report& r) {
  auto layer = layer_in<T>(c);
  const auto x = c.rows<T>("x");
  check_size(c, "t", x.shape()[0] / c.number<extent>("b"));
  r.compare("y", value_of(layer(x)), c.rows<double>("y64"));
  judge_gradients(c, r, layer, x);
  judge_ranks(r, layer, x, c.rows<double>("y64"));
  r.compare("key_scores", lists_first(value_of(layer.key_scores(x))), c.rows<double>("key_scores"));
  const auto selected = c.integers("selected");
  const extent n = c.number<extent>("N");
  const auto compare = [&](const char* name) {
    const auto found = rows(value_of(layer.coefficients(x)));
    const auto expected = dense(selected, c.rows<double>(name), n);
    r.compare(name, found, expected);
    r.compare_selection(name, found, expected);
  };
  compare("weights");
  layer.weights = weighting::score;
  compare("scores");
}

}  // namespace

void judge_peer(golden_case& c, report& r) {
  if (c.required("names") != "released") throw not_understood("names " + c.required("names"));
  golden_case again = c;
  judge_in<float>(again, r);
  judge_in<double>(c, r);
  c.ignore("y");  // the authors' own
}

}  // namespace fmoe::golden
