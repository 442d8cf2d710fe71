// SPDX-License-Identifier: MIT
// The settings of a layer in the metadata of its file: "K" or "k" and "selection", "activation",
// "kind".
#pragma once

#include <charconv>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/functions.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

struct layer_settings {
  std::optional<extent> active;
  std::optional<pointwise> activation;
  std::optional<std::string> kind;
};

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

// Returns the function with this name; capitals count as small letters. Throws schema for an
// unknown name.
inline pointwise activation_named(std::string_view name, const std::filesystem::path& file) {
  std::string small(name);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const auto& [known, fn] : activation_names)
    if (known == small) return fn;
  throw error(errc::schema,
              "has the activation " + in_quotes(name) + " in its metadata, which is not known", 0,
              {}, file);
}

// Throws schema for a function that files cannot name.
inline std::string text_of_activation(pointwise f, const std::filesystem::path& file) {
  for (const auto& [name, fn] : activation_names)
    if (fn == f) return std::string(name);
  throw error(errc::schema, std::string("cannot name the activation ") + name_of(f), 0, {}, file);
}

inline std::string text_of_active(extent k) { return k == all ? "-1" : std::to_string(k); }

inline std::string text_of_setting(extent k) { return text_of_active(k); }
inline std::string text_of_setting(pointwise f) { return name_of(f); }

// Returns a number, or `all` for -1. Throws schema for any other text.
inline extent active_named(std::string_view text, const std::filesystem::path& file) {
  extent k = all;
  if (text == "-1") return k;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), k);
  if (fault != std::errc() || end != text.data() + text.size() || k == all)
    throw error(
        errc::schema,
        "has K = " + in_quotes(text) + " in its metadata, which is no number of experts and not -1",
        0, {}, file);
  return k;
}

// Returns the setting that one or both of them have. Throws conflict if they differ.
template <class Setting>
std::optional<Setting> agreed(std::optional<Setting> wanted, std::optional<Setting> found,
                              const char* what, const std::filesystem::path& file,
                              const char* wanted_where = "asked for") {
  if (wanted && found && *wanted != *found)
    throw error(errc::conflict,
                std::string("has ") + what + " = " + text_of_setting(*found) +
                    " in its metadata, and " + text_of_setting(*wanted) + " is " + wanted_where,
                0, {}, file);
  return wanted ? wanted : found;
}

// Throws schema for settings that cannot be understood, and conflict for contradictions.
inline layer_settings settings_in(const std::map<std::string, std::string>& metadata,
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
    if (!selects && *selection != "relu" && *selection != "none")
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
