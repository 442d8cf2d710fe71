// SPDX-License-Identifier: MIT
// What config.json beside a released Monet model says of its layers and routers.
#pragma once

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmoe/io/model_config.hpp>

namespace fmoe::detail {

// What config.json says beside the settings that load reads; it may leave out each of them.
struct monet_config {
  std::optional<extent> heads;    // moe_heads
  std::optional<extent> experts;  // moe_experts: of each half
  std::optional<extent> group;    // moe_groups: as many layers share the router of the first
};

// Reads config.json beside the model's file. Nothing is said by a GGUF file, by a model without a
// config.json, and by one of another architecture. Throws io, json, and schema for a setting that
// is no positive integer.
inline monet_config monet_config_of(const io::checkpoint& model) {
  const auto file = std::filesystem::path(model.file()).replace_filename("config.json");
  std::error_code unknown;
  if (!std::filesystem::exists(file, unknown)) return {};
  const io::model_config said = io::model_config::of(model);
  if (said.is_gguf() || (!said.architecture().empty() && said.architecture() != "monet")) return {};
  const auto count = [&](std::string_view name) {
    return said.text(name) ? std::optional(said.count(name)) : std::nullopt;
  };
  return {count("moe_heads"), count("moe_experts"), count("moe_groups")};
}

// Returns the number at the end of "model.layers.3.", if there is one.
inline std::optional<extent> layer_number(std::string_view prefix) {
  if (!prefix.ends_with('.')) return {};
  prefix.remove_suffix(1);
  const std::string_view digits = prefix.substr(prefix.rfind('.') + 1);
  extent number = 0;
  const auto [end, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = fault == std::errc() && end == digits.data() + digits.size();
  return is_number ? std::optional(number) : std::nullopt;
}

// Throws missing_tensor or conflict if the layer at this prefix has a router where config.json says
// that it has none, or the reverse.
inline void check_group(const monet_config& config, const io::checkpoint& from,
                        const std::string& prefix, bool has_router) {
  const auto number = layer_number(prefix);
  if (!config.group || !number) return;
  const extent place = *number % *config.group;
  if ((place == 0) == has_router) return;
  throw io::error(place == 0 ? io::errc::missing_tensor : io::errc::conflict,
                  std::string(place == 0 ? "is missing" : "is there") +
                      ", and config.json says moe_groups = " + std::to_string(*config.group) +
                      ": layer " + std::to_string(*number) +
                      (place == 0 ? " has a router"
                                  : " takes the routing of layer " +
                                        std::to_string(*number - place) + " and has none"),
                  0, prefix + "router.w1.weight", from.file());
}

}  // namespace fmoe::detail
