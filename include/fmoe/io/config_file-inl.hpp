// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <fmoe/io/config_file.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/layer_settings.hpp>
#include <fmoe/io/load.hpp>

namespace fmoe::io {

// Puts null in the place of Infinity and NaN, which are no JSON.
inline void replace_infinities(std::string& text) {
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    else if (in_string && text[at] == '\\') ++at;
    if (in_string) continue;
    for (const std::string_view number : {"-Infinity", "Infinity", "NaN"})
      if (std::string_view(text).substr(at).starts_with(number)) {
        text.replace(at, number.size(), "null");
        break;
      }
  }
}

inline bool is_number_of_json(const nlohmann::json& value) {
  return value.is_number() || value.is_null();
}

// Adds the members of an object that are numbers, strings, or true or false, and arrays of numbers,
// one for each layer, as "2,2". A null among them is 0.
inline void add_texts(strings_by_name& to, const std::string& before,
                      const nlohmann::json& object) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) to[before + name] = value.get<std::string>();
    else if (value.is_number() || value.is_boolean()) to[before + name] = value.dump();
    else if (value.is_array() && !value.empty() && std::ranges::all_of(value, is_number_of_json)) {
      std::string& text = to[before + name];
      for (const nlohmann::json& n : value)
        text.append(text.empty() ? "" : ",").append(n.is_null() ? "0" : n.dump());
    }
  }
}

FMOE_INLINE strings_by_name read_config(const std::filesystem::path& config) {
  constexpr std::uint64_t most = 1 << 24;  // bytes
  const input in(config);
  if (in.size > most)
    throw error(errc::limit, "has more than 16 MiB, too many for a config.json", 0, {}, config);
  std::string text(static_cast<extent>(in.size), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  replace_infinities(text);
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    throw error(errc::json, "is no JSON, as a config.json is", e.byte, {}, config);
  }
  if (!object.is_object())
    throw error(errc::json, "is no JSON object, as a config.json is", 0, {}, config);
  for (const char* const part : {"thinker_config", "text_config"})
    if (const auto inner = object.find(part); inner != object.end() && inner->is_object())
      object = nlohmann::json(*inner);
  strings_by_name said;
  add_texts(said, "", object);
  for (const auto& [name, value] : object.items())
    if (value.is_object()) add_texts(said, name + '.', value);
  return said;
}

FMOE_INLINE std::string in_config(const std::filesystem::path& config) {
  return "in " + in_quotes(detail::path_text(config.filename())) + " beside it";
}

FMOE_INLINE void add_setting(layer_arrays& to, const std::string& key, const std::string& text,
                             const std::string& where) {
  const std::string& found = to.metadata.try_emplace(key, text).first->second;
  const auto function = key == "activation" ? find_activation(text) : std::nullopt;
  if (found != text && !(function && find_activation(found) == function))
    throw error(errc::conflict,
                "has " + key + " = " + in_quotes(found) + " in its metadata, and " +
                    in_quotes(text) + " is " + where,
                0, {}, to.file);
}

FMOE_INLINE void add_config(layer_arrays& to, const released_layer& layer) {
  const std::filesystem::path config = to.file.parent_path() / "config.json";
  if (layer.settings.empty() || to.file.empty() ||
      type_of(config) == std::filesystem::file_type::not_found)
    return;
  const strings_by_name said = read_config(config);
  const auto model = said.find("model_type");
  for (const released_setting& s : layer.settings) {
    const auto found = said.find(std::string(s.in_config));
    const bool is_of_model = model == said.end() || model->second == s.model_type;
    if (found == said.end() || !is_of_model) continue;
    extent count = 0;
    const bool is_count = is_number(found->second, count) && count != 0;
    if (!is_count && s.in_metadata != "activation")
      throw error(errc::schema,
                  "has " + in_quotes(found->first) + " = " + in_quotes(found->second) +
                      ", which is no positive integer",
                  0, {}, config);
    add_setting(to, std::string(s.in_metadata), found->second, in_config(config));
  }
}

}  // namespace fmoe::io
