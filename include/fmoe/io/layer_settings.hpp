// SPDX-License-Identifier: MIT
// The settings of a layer in the metadata of its file: "K" or "k" and "selection", "activation",
// "kind".
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/functions.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

struct layer_settings {
  std::optional<extent> active;
  std::optional<pointwise> activation;
  std::optional<std::string> kind;
};

// Returns the function with this name, or nothing; capitals count as small letters.
std::optional<pointwise> find_activation(std::string_view name);

// The same for a name that is expected. Throws schema for an unknown one.
pointwise activation_named(std::string_view name, const std::filesystem::path& file);

// Throws schema for a function that files cannot name.
std::string text_of_activation(pointwise f, const std::filesystem::path& file);

inline std::string text_of_active(extent k) { return k == all ? "-1" : std::to_string(k); }

inline std::string text_of_setting(extent k) { return text_of_active(k); }
inline std::string text_of_setting(pointwise f) { return name_of(f); }

// True for a kind of the layers that name their kinds. (`dense` is a kind of muMoE and of the
// mixtures, so it tells nothing.)
bool is_kind(std::string_view name);

// Returns a number, or `all` for -1. Throws schema for any other text.
extent active_named(std::string_view text, const std::filesystem::path& file);

// Returns the setting that one or both of them have. Throws conflict if they differ.
template <class Setting>
std::optional<Setting> agreed(std::optional<Setting> wanted, std::optional<Setting> found,
                              const char* what, const std::filesystem::path& file,
                              const char* wanted_where) {
  const bool differ = wanted && found && *wanted != *found;
  if (differ)
    throw error(errc::conflict,
                std::string("has ") + what + " = " + text_of_setting(*found) +
                    " in its metadata, and " + text_of_setting(*wanted) + " is " + wanted_where,
                0, {}, file);
  return wanted ? wanted : found;
}

// Returns the error of a setting that the layer needs and nothing says.
inline error unsaid_setting(const std::string& key, const std::filesystem::path& file) {
  return {errc::missing_setting,
          "does not say " + in_quotes(key) + ", which the layer needs: pass " +
              (key == "K" ? "K as `active`" : "it in `metadata`"),
          0,
          {},
          file};
}

// Throws schema for settings that cannot be understood, and conflict for contradictions.
layer_settings settings_in(const std::map<std::string, std::string>& metadata,
                           const std::filesystem::path& file);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/layer_settings-inl.hpp>
#endif
