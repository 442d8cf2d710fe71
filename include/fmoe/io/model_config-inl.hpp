// SPDX-License-Identifier: MIT
// Reads config.json, and finds settings in it or in a GGUF file.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include <fmoe/base/number_text.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/model_config.hpp>

namespace fmoe::io {

FMOE_INLINE strings_by_name read_config(const std::filesystem::path& config) {
  constexpr std::uint64_t most = 1 << 24;  // bytes
  const input in(config);
  if (in.size > most)
    throw error(errc::limit, "has more than 16 MiB, too many for a config.json", 0, {}, config);
  std::string text(static_cast<extent>(in.size), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object())
    throw error(errc::json, "is not a JSON object, as a config.json is", 0, {}, config);
  if (const auto inner = object.find("text_config"); inner != object.end() && inner->is_object())
    object = nlohmann::json(*inner);
  strings_by_name said;
  for (const auto& [name, value] : object.items()) {
    if (value.is_string()) said[name] = value.get<std::string>();
    else if (value.is_number() || value.is_boolean()) said[name] = value.dump();
  }
  return said;
}

FMOE_INLINE model_config model_config::of(const checkpoint& model) {
  model_config config;
  config.file_ = model.file();
  if (io::is_gguf(input(model.file()))) {
    config.said_ = model.metadata();
    config.architecture_ = config.text("general.architecture").value_or("");
    config.prefix_ = config.architecture_ + '.';
    return config;
  }
  config.file_ = model.file().parent_path() / "config.json";
  config.said_ = read_config(config.file_);
  config.architecture_ = config.text("model_type").value_or("");
  return config;
}

FMOE_INLINE std::optional<std::string> model_config::text(std::string_view name) const {
  auto found = said_.find(prefix_ + std::string(name));
  if (found == said_.end()) found = said_.find(std::string(name));
  return found == said_.end() ? std::nullopt : std::optional(found->second);
}

FMOE_INLINE std::optional<double> model_config::number(std::string_view name) const {
  const auto said = text(name);
  if (!said) return {};
  double value = 0;
  if (!is_number(*said, value)) refuse(name, "is no number");
  return value;
}

FMOE_INLINE std::optional<bool> model_config::flag(std::string_view name) const {
  const auto said = text(name);
  if (!said) return {};
  if (*said != "true" && *said != "false") refuse(name, "is neither true nor false");
  return *said == "true";
}

FMOE_INLINE extent model_config::count(std::string_view name) const {
  const auto value = number(name);
  if (!value) throw error(errc::schema, "has no " + in_quotes(std::string(name)), 0, {}, file_);
  constexpr double most = 1 << 30;
  if (!(*value >= 1 && *value <= most) || *value != std::floor(*value))
    refuse(name, "is no positive integer");
  return static_cast<extent>(*value);
}

FMOE_INLINE void model_config::refuse(std::string_view name, const std::string& why) const {
  throw error(errc::schema,
              "has " + in_quotes(std::string(name)) + " = " + in_quotes(text(name).value_or("")) +
                  ", which " + why,
              0, {}, file_);
}

}  // namespace fmoe::io
