// SPDX-License-Identifier: MIT
// Finds the settings of a model in its config.json or in a GGUF file.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmoe/base/number_text.hpp>
#include <fmoe/io/config_file.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/model_config.hpp>

namespace fmoe::io {

FMOE_INLINE model_config model_config::of(const checkpoint& model, extent layer) {
  model_config config;
  config.layer_ = layer;
  config.file_ = model.file();
  if (io::is_gguf(input(model.file()))) {
    config.said_ = model.metadata();
    config.architecture_ = config.text("general.architecture").value_or("");
    config.prefix_ = config.architecture_ + '.';
    return config;
  }
  config.file_ = model.file().parent_path() / "config.json";
  if (type_of(config.file_) == std::filesystem::file_type::not_found)
    throw error(errc::io,
                "is not there: the settings of the model are expected in it, beside the weights", 0,
                {}, config.file_);
  config.said_ = read_config(config.file_);
  config.architecture_ = config.text("model_type").value_or("");
  return config;
}

FMOE_INLINE std::optional<std::string> model_config::text(std::string_view name) const {
  auto found = said_.find(prefix_ + std::string(name));
  if (found == said_.end()) found = said_.find(std::string(name));
  if (found == said_.end()) return {};
  std::string_view all = found->second;
  if (all.find(',') == all.npos) return found->second;
  for (extent l = 0; l < layer_ && !all.empty(); ++l)
    all.remove_prefix(std::min(all.find(','), all.size() - 1) + 1);
  return std::string(all.substr(0, all.find(',')));
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
