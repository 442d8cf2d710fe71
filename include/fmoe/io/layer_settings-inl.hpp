// SPDX-License-Identifier: MIT
// What the texts of settings mean.
#pragma once

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmoe/base/number_text.hpp>
#include <fmoe/io/layer_settings.hpp>

namespace fmoe::io {

// Files are written with the first spelling of each function.
inline constexpr std::pair<std::string_view, pointwise> activation_names[] = {
    {"relu", pointwise::relu},
    {"gelu", pointwise::gelu},
    {"gelu_exact", pointwise::gelu},
    {"gelu_erf", pointwise::gelu},
    {"gelu (erf)", pointwise::gelu},
    {"gelu_tanh", pointwise::gelu_tanh},
    {"gelu (tanh)", pointwise::gelu_tanh},
    {"gelu_pytorch_tanh", pointwise::gelu_tanh},
    {"gelu_new", pointwise::gelu_tanh},
    {"silu", pointwise::silu},
    {"swish", pointwise::silu},
    {"sigmoid", pointwise::sigmoid},
    {"squared_relu", pointwise::squared_relu},
    {"relu2", pointwise::squared_relu}};

FMOE_INLINE std::optional<pointwise> find_activation(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const auto& [known, fn] : activation_names)
    if (known == lower) return fn;
  return {};
}

FMOE_INLINE pointwise activation_named(std::string_view name, const std::filesystem::path& file) {
  if (const auto found = find_activation(name)) return *found;
  throw error(errc::schema,
              "has the activation " + in_quotes(name) + " in its metadata, which is not known", 0,
              {}, file);
}

FMOE_INLINE std::string text_of_activation(pointwise f, const std::filesystem::path& file) {
  for (const auto& [name, fn] : activation_names)
    if (fn == f) return std::string(name);
  throw error(errc::schema, std::string("cannot name the activation ") + name_of(f), 0, {}, file);
}

FMOE_INLINE bool is_kind(std::string_view name) {
  constexpr std::string_view kinds[] = {
      "mxd", "mxd_mlp", "mxd_glu", "transcoder", "skip_transcoder", "cross_layer_transcoder",
      "sae", "cp",      "tr",      "tucker"};
  return std::ranges::find(kinds, name) != std::end(kinds);
}

FMOE_INLINE extent active_named(std::string_view text, const std::filesystem::path& file) {
  extent k = all;
  if (text == "-1") return k;
  if (!is_number(text, k) || k == all)
    throw error(
        errc::schema,
        "has K = " + in_quotes(text) + " in its metadata, which is no number of experts and not -1",
        0, {}, file);
  return k;
}

FMOE_INLINE layer_settings settings_in(const std::map<std::string, std::string>& metadata,
                                       const std::filesystem::path& file) {
  const auto text = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::nullopt : std::optional(at->second);
  };
  layer_settings said;
  said.kind = text("kind");
  if (const auto name = text("activation")) said.activation = activation_named(*name, file);
  for (const char* key : {"K", "k"})
    if (const auto k = text(key))
      said.active = agreed<extent>(said.active, active_named(*k, file), "k", file, "its K");
  if (const auto selection = text("selection")) {
    const bool selects = *selection == "topk";
    const bool is_known = selects || *selection == "relu" || *selection == "none";
    if (!is_known)
      throw error(
          errc::schema,
          "has the selection " + in_quotes(*selection) + " in its metadata, which is not known", 0,
          {}, file);
    if (said.active && selects == (*said.active == all))
      throw error(errc::conflict,
                  "has the selection " + in_quotes(*selection) +
                      " and K = " + text_of_active(*said.active) + " in its metadata",
                  0, {}, file);
    if (!selects) said.active = all;
  }
  return said;
}

}  // namespace fmoe::io
