// SPDX-License-Identifier: MIT
// The settings of a released model: those of config.json beside its safetensors, or the metadata of
// its GGUF file.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/little_endian.hpp>

namespace fmoe::io {

// The settings of a model by their names.
class model_config {
 public:
  // Reads config.json beside the model's file, or the metadata of a GGUF file, where a setting may
  // have a number for each layer. Throws io and json.
  static model_config of(const checkpoint& model, extent layer = 0);

  // The architecture by its name, such as "mixtral" or, in a GGUF file, "qwen3moe".
  const std::string& architecture() const { return architecture_; }
  bool is_gguf() const { return !prefix_.empty(); }

  // Names are those of config.json, or those of a GGUF file without its architecture. Each throws
  // schema for a text of another kind.
  std::optional<double> number(std::string_view name) const;
  std::optional<bool> flag(std::string_view name) const;
  std::optional<std::string> text(std::string_view name) const;
  // Throws schema also if there is no such setting, or if it is no positive integer.
  extent count(std::string_view name) const;

  [[noreturn]] void refuse(std::string_view name, const std::string& why) const;

 private:
  std::filesystem::path file_;
  strings_by_name said_;
  std::string architecture_, prefix_;  // "qwen3moe."
  extent layer_ = 0;
};

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/model_config-inl.hpp>
#endif
