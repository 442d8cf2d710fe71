// SPDX-License-Identifier: MIT
// Versions 3 to 6 of SAELens, whose settings these are.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmoe/io/config_file.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/io/saelens.hpp>

namespace fmoe::io {

FMOE_INLINE bool has_names_of_saelens(const released_layer& layer) {
  return std::ranges::any_of(layer.kinds, [](const released_kind& k) { return k.name == "sae"; });
}

// True if each row of the matrix has the norm 1, up to what 16 bits lose.
inline bool has_rows_of_norm_1(const array& matrix) {
  constexpr double tolerance = 0.02;
  const tensor<double, 2> rows = matrix.get<double, 2>({all, all}, narrow);
  for (extent r = 0; r < rows.shape()[0]; ++r) {
    double squares = 0;
    for (extent c = 0; c < rows.shape()[1]; ++c) squares += rows(r, c) * rows(r, c);
    if (std::abs(std::sqrt(squares) - 1) > tolerance) return false;
  }
  return true;
}

FMOE_INLINE void read_saelens(layer_arrays& from, std::string_view prefix, tensors_read& read) {
  const std::filesystem::path config = from.file.parent_path() / "cfg.json";
  if (from.file.empty() || type_of(config) == std::filesystem::file_type::not_found) return;
  const strings_by_name said = read_config(config);
  const auto text = [&](const char* key, const char* unsaid) -> std::string {
    const auto at = said.find(key);
    return at == said.end() ? unsaid : at->second;
  };
  const auto refuse = [&](const char* key, const char* why) {
    throw error(
        errc::schema,
        std::string("has ") + in_quotes(key) + " = " + in_quotes(text(key, "")) + ", " + why, 0, {},
        config);
  };
  const std::string name = std::string(prefix);
  const auto rename = [&](std::string_view old, const char* now) {
    auto node = from.arrays.extract(name + std::string(old));
    if (node.empty()) return;
    read.insert(node.key());
    node.key() = name + now;
    from.arrays.insert(std::move(node));
  };

  const std::string first_version = said.contains("activation_fn_str") ? "standard" : "";
  const std::string architecture = text("architecture", first_version.c_str());
  if (architecture.empty()) return;  // another library's
  const std::string function = text("activation_fn_str", architecture == "topk" ? "topk" : "relu");
  const bool is_transcoder = architecture == "transcoder" || architecture == "skip_transcoder";
  if (!is_transcoder && architecture != "standard" && architecture != "topk")
    refuse("architecture", "which fmoe does not compute");
  if (function != "relu" && function != "topk")
    refuse("activation_fn_str", "which fmoe does not compute");
  if (text("normalize_activations", "none") != "none")
    refuse("normalize_activations", "and fmoe does not normalise x");
  const bool subtracts = text("apply_b_dec_to_input", is_transcoder ? "false" : "true") == "true";
  if (is_transcoder && subtracts)
    refuse("apply_b_dec_to_input", "and fmoe's transcoders subtract no bias from x");
  const auto decoder = from.arrays.find(name + "W_dec");
  if (text("rescale_acts_by_decoder_norm", "false") == "true" && decoder != from.arrays.end() &&
      !decoder->second.is_outline() && !has_rows_of_norm_1(decoder->second))
    refuse("rescale_acts_by_decoder_norm",
           "and rows of W_dec whose norms are not 1: fold_W_dec_norm of SAELens makes them so");

  add_setting(from, "activation", "relu", in_config(config));
  if (function == "relu") add_setting(from, "K", "-1", in_config(config));
  else if (said.contains("k")) add_setting(from, "K", said.at("k"), in_config(config));
  if (!subtracts) rename("b_dec", "b_dec_out");
  if (architecture == "skip_transcoder") rename(saelens_skip, "W_skip.weight");
}

}  // namespace fmoe::io
