// SPDX-License-Identifier: MIT
#include "mxd.hpp"

#include <fmoe/edit.hpp>
#include <fmoe/io/layer_settings.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <set>

#include "gradients.hpp"
#include "magnitudes.hpp"
#include "over_ranks.hpp"
#include "value_of.hpp"

namespace fmoe::golden {

namespace {

// The same quantities for every member of the family, under the names in the files.
template <class T>
struct family_member;

template <class T>
struct family_member<mxd<T>> {
  const mxd<T>& layer;

  extent experts() const { return layer.scales.shape()[0]; }
  named_sizes sizes() const { return {{"n", experts()}, {"glu", !layer.linear.empty()}}; }
  auto score_magnitudes(const tensor<T, 2>& x) const {
    return magnitudes(x, layer.gate, layer.gate_bias);
  }
  auto hidden_magnitudes(const tensor<T, 2>& x) const {
    auto result = magnitudes(x, layer.encoder, layer.encoder_bias);
    if (layer.linear.empty()) return result;
    const auto other = magnitudes(x, layer.linear, layer.linear_bias);
    for (extent t = 0; t < result.size(); ++t) result[t] *= other[t];
    return result;
  }
  auto preactivations(const operand auto& x) const {
    return add_bias(einsum<"ti,in->tn">(x, layer.gate), layer.gate_bias);
  }
  auto scores(const operand auto& x) const { return relu(preactivations(x)); }
  auto hidden(const operand auto& x) const { return layer.hidden(x); }
  auto coefficients(const operand auto& x) const { return layer.coefficients(x); }
  auto expert(extent n) const { return layer.expert(n); }
};

template <class T>
struct family_member<sparse_mlp<T>> {
  const sparse_mlp<T>& layer;

  extent experts() const { return layer.decoder.shape()[0]; }
  named_sizes sizes() const { return {{"glu", 0}}; }
  auto score_magnitudes(const tensor<T, 2>& x) const {
    return magnitudes(x, layer.encoder, layer.encoder_bias);
  }
  auto hidden_magnitudes(const tensor<T, 2>& x) const { return score_magnitudes(x); }
  auto preactivations(const operand auto& x) const { return layer.preactivations(x); }
  auto scores(const operand auto& x) const { return apply(layer.activation, preactivations(x)); }
  auto hidden(const operand auto& x) const { return scores(x); }
  auto coefficients(const operand auto& x) const { return layer.coefficients(x); }
  expr<arithmetic_t<T>, 2> expert(extent) const {
    throw not_understood("a transcoder's unit has no matrix");
  }
};

// Returns [t, columns] from its dense form or from index and value; nullopt if the case has
// neither.
std::optional<tensor<double, 2>> coefficients_in(golden_case& c, extent tokens, extent columns) {
  if (c.has("coefficients")) return c.rows<double>("coefficients");
  if (!c.has("coefficients.index")) return std::nullopt;
  const auto index = c.integers("coefficients.index");
  const auto value = c.rows<double>("coefficients.value");
  tensor<double, 2> dense({tokens, columns});
  if (value.shape()[0] != tokens || value.size() != index.size())
    throw not_understood("index and value have other shapes than x");
  for (extent i = 0; i < index.size(); ++i) {
    if (!std::in_range<extent>(index[i]) || static_cast<extent>(index[i]) >= columns)
      throw not_understood("an index is beyond the experts");
    dense(i / value.shape()[1], index[i]) = value.data()[i];
  }
  return dense;
}

// Checks that the experts that `index` lists for each row are those with the largest `scores`,
// lowest index first.
template <class T>
void compare_index(golden_case& c, report& r, const tensor<T, 2>& scores, extent k) {
  const auto [tokens, columns] = scores.shape();
  const auto index = c.integers("index");
  if (k > columns || index.size() != tokens * k) throw not_understood("index is not [t, k]");
  for (extent t = 0; t < tokens; ++t) {
    const T* row = scores.data() + t * columns;
    std::vector<std::int64_t> order(columns);
    for (extent n = 0; n < columns; ++n) order[n] = static_cast<std::int64_t>(n);
    std::ranges::stable_sort(order,
                             [&](std::int64_t a, std::int64_t b) { return row[a] > row[b]; });
    const auto listed = index.begin() + static_cast<std::ptrdiff_t>(t * k);
    if (std::set(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k)) ==
        std::set(listed, listed + static_cast<std::ptrdiff_t>(k)))
      continue;
    r.fault("row " + std::to_string(t) + "'s scores select other experts than index lists");
    return;
  }
}

template <class T, template <class> class Layer>
void judge_mxd_in(golden_case& c, report& r) {
  const io::layer_settings settings = io::settings_in(c.metadata(), c.file());
  if (!settings.active || !settings.activation)
    throw not_understood("the metadata has no k or no activation");
  const auto layer =
      load<Layer<T>>(c.weights(), {.active = settings.active, .activation = settings.activation});
  const family_member<Layer<T>> member{layer};
  const auto x = c.rows<T>("x");
  const extent tokens = x.shape()[0], experts = member.experts();
  const std::string kind = io::arrays_of(layer, c.weights(), {}).metadata.at("kind");
  if (c.required("kind") != kind && c.required("kind") != "mxd")
    throw not_understood("kind " + c.required("kind") + " with the weights of a " + kind);
  const auto &encoder = layer.encoder.shape(), &decoder = layer.decoder.shape();
  check_sizes(c, {{"t", tokens},
                  {"i", encoder[0]},
                  {"h", encoder[1]},
                  {"o", decoder[1]},
                  {"skip", !layer.skip.empty()}});
  check_sizes(c, member.sizes());

  if (c.text("steer_index")) {
    const auto towards =
        steered(layer, c.number<extent>("steer_index"), c.number<double>("lambda"));
    r.compare("y", value_of(towards(x)), c.rows<double>("y64"));
    if (c.has("y64_base")) r.compare("unsteered y", value_of(layer(x)), c.rows<double>("y64_base"));
  } else {
    r.compare("y", value_of(layer(x)), c.rows<double>("y64"));
    judge_gradients(c, r, layer, x);
    judge_ranks(r, layer, x, c.rows<double>("y64"));
  }

  const auto hidden = value_of(member.hidden(x));
  const auto preactivations = value_of(member.preactivations(x));
  const auto coefficients = value_of(member.coefficients(x));
  const auto score_magnitudes = member.score_magnitudes(x);
  if (c.has("hidden"))
    r.compare("hidden", hidden, c.rows<double>("hidden"), member.hidden_magnitudes(x));
  if (c.has("preactivations"))
    r.compare("preactivations", preactivations, c.rows<double>("preactivations"), score_magnitudes);
  if (const auto expected = coefficients_in(c, tokens, experts)) {
    r.compare("coefficients", coefficients, *expected, score_magnitudes);
    if (layer.active != all) r.compare_selection("coefficients", coefficients, *expected);
  }
  if (c.has("index")) compare_index(c, r, value_of(member.scores(x)), layer.active);

  const auto names = c.unread();
  for (const std::string& name : names) {
    extent n = 0;
    const char *first = name.data() + std::min<extent>(7, name.size()),
               *last = name.data() + name.size();
    if (!name.starts_with("expert.") || std::from_chars(first, last, n).ptr != last) continue;
    r.compare(name, value_of(member.expert(n)), c.rows<double>(name));
  }
  for (const char* authors_own : {"y", "y64_torch", "torch_index"}) c.ignore(authors_own);
}

template <template <class> class Layer>
void judge_mxd_as(golden_case& c, report& r) {
  golden_case again = c;
  judge_mxd_in<float, Layer>(again, r);
  judge_mxd_in<double, Layer>(c, r);
}

}  // namespace

void judge_mxd(golden_case& c, report& r) {
  const std::string kind = c.required("kind");
  if (kind == "mxd" || kind == "mxd_mlp" || kind == "mxd_glu") judge_mxd_as<mxd>(c, r);
  else if (kind == "transcoder" || kind == "skip_transcoder" || kind == "sae")
    judge_mxd_as<sparse_mlp>(c, r);
  else throw not_understood("kind " + kind);
}

}  // namespace fmoe::golden
