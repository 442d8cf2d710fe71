// SPDX-License-Identifier: MIT
// Which library has trained a dictionary, and what its names and settings mean.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include <fmoe/io/dictionary_arrays.hpp>
#include <fmoe/io/saelens-inl.hpp>

namespace fmoe::io {

FMOE_INLINE bool is_dictionary(const released_layer& layer) {
  return std::ranges::any_of(layer.kinds, [](const released_kind& k) {
    return k.name == "sae" || k.name == "cross_layer_transcoder";
  });
}

// The settings beside the file, if there are any.
inline std::optional<config_beside> settings_beside(const std::filesystem::path& file,
                                                    const char* name = "cfg.json") {
  const std::filesystem::path beside = file.parent_path() / name;
  if (file.empty() || type_of(beside) == std::filesystem::file_type::not_found) return {};
  return config_beside(beside);
}

// eai-sparsify 1.3: TopK of ReLU, or the greatest of each of K groups; a transcoder subtracts no
// bias from x.
inline void read_sparsify(dictionary_arrays& arrays, const config_beside& config) {
  const std::string activation = config.text("activation", "topk");
  if (activation == "groupmax") arrays.set("groupmax", "true", config.where());
  else if (activation != "topk") config.refuse("activation", "which fmoe does not compute");
  arrays.transpose("encoder.weight", "W_enc");
  arrays.rename("encoder.bias", "b_enc");
  arrays.rename("W_skip", "W_skip.weight");
  if (config.text("transcode", "false") == "true") arrays.rename("b_dec", "b_dec_out");
  arrays.set("activation", "relu", config.where());
  if (config.has("k")) arrays.set("K", config.text("k", ""), config.where());
}

// dictionary_learning 0.1. Its names tell its classes, but for those with K and a threshold: in
// training both have both.
inline dictionary_settings read_dictionary_learning(dictionary_arrays& arrays) {
  const std::string name = arrays.said("dict_class");
  dictionary_settings settings{{"dict_class"}, {}};
  if (name.empty() && arrays.has("k")) settings.needed.insert("dict_class");
  arrays.transpose("encoder.weight", "W_enc");
  arrays.rename("encoder.bias", "b_enc");
  arrays.transpose("decoder.weight", "W_dec");
  arrays.rename("bias", "b_dec");
  arrays.rename("decoder_bias", "b_dec");
  arrays.rename("decoder.bias", "b_dec_out");
  arrays.rename("gate_bias", "b_gate");
  arrays.rename("mag_bias", "b_mag");
  if (name == "JumpReluAutoEncoder") arrays.rename("b_dec", "b_dec_out");
  else arrays.set_unsaid("apply_b_dec_to_input", "true");
  arrays.set_unsaid("activation", "relu");
  if (name == "AutoEncoderTopK") {
    const array* const k = arrays.find("k");
    if (k != nullptr && k->type() == element_type::i32 && k->shape().empty() && !k->is_outline())
      arrays.set_unsaid("K", std::to_string(k->integers<std::int32_t>()[0]));
    arrays.drop("threshold");
  } else {
    arrays.set_unsaid("K", "-1");
    arrays.spread("threshold");
  }
  arrays.drop("k");
  arrays.drop("group_sizes");
  return settings;
}

// True if the config.yaml says that the folder has a transcoder of circuit-tracer for each layer.
inline bool has_transcoder_set(const std::filesystem::path& config) {
  if (type_of(config) == std::filesystem::file_type::not_found) return false;
  constexpr std::uint64_t most = 1 << 20;  // bytes
  const input in(config);
  std::string text(static_cast<extent>(std::min(in.size, most)), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  const auto kind = text.find("model_kind:");
  const auto line = text.substr(std::min(kind, text.size()), text.find('\n', kind) - kind);
  return line.find("transcoder_set") != line.npos;
}

// A transcoder of circuit-tracer 0.5 for one layer, or the units of one layer of a cross-layer
// transcoder, W_enc [unit, input]: SAELens has this name for the other order, which no shape tells
// where there are as many units as inputs.
inline void read_circuit_tracer(dictionary_arrays& arrays) {
  arrays.transpose("W_enc", "W_enc");
  arrays.rename("activation_function.threshold", "threshold");
  arrays.rename("b_dec", "b_dec_out");
  if (!arrays.crosses_layers("W_dec")) {  // whose files have no skips
    if (arrays.has_negative("threshold")) arrays.set_unsaid("abs_topk", "true");  // it has no ReLU
    arrays.rename("W_skip", "W_skip.weight");
  }
  arrays.set_unsaid("K", "-1");
  arrays.set_unsaid("activation", "relu");
}

// A JumpReLU without a cfg.json. The names of Gemma Scope and of dictionary_learning, which do not
// subtract b_dec from x, are those of SAELens, which does.
inline void read_jumprelu(dictionary_arrays& arrays) {
  if (!arrays.has("threshold")) return;
  arrays.set_unsaid("K", "-1");
  arrays.set_unsaid("activation", "relu");
  if (arrays.said("apply_b_dec_to_input") == "false") arrays.rename("b_dec", "b_dec_out");
}

// The number in "layer_3" of a file's name, or what the metadata say.
inline std::string layer_of(const dictionary_arrays& arrays) {
  const std::string name = detail::path_text(arrays.file().stem()), said = arrays.said("layer");
  const auto at = name.rfind("layer_");
  if (!said.empty() || at == name.npos) return said;
  const auto digits = name.find_first_not_of("0123456789", at + 6);
  return name.substr(at + 6, digits - at - 6);
}

// Gemma Scope 2: a JumpReLU with ReLU, which subtracts no bias from x. A cross-layer transcoder
// has a decoder for each layer of the model, with zeros for those before its own.
inline dictionary_settings read_gemma_scope_2(dictionary_arrays& arrays) {
  dictionary_settings settings;
  if (const auto said = settings_beside(arrays.file(), "config.json"))
    if (said->text("architecture", "jump_relu") != "jump_relu")
      said->refuse("architecture", "which fmoe does not compute");
  arrays.rename("w_enc", "W_enc");
  if (arrays.crosses_layers("w_dec")) {
    settings.asked.insert("layer");
    if (extent layer = 0; is_number(layer_of(arrays), layer)) {
      arrays.rename_from_layer("w_dec", "W_dec", layer);
      arrays.at_least_0("threshold");
    } else {
      settings.needed.insert("layer");
    }
  }
  arrays.rename("w_dec", "W_dec");
  arrays.transpose("affine_skip_connection", "W_skip.weight");
  arrays.rename("b_dec", "b_dec_out");
  arrays.set_unsaid("K", "-1");
  arrays.set_unsaid("activation", "relu");
  return settings;
}

FMOE_INLINE dictionary_library library_of(const layer_arrays& from, std::string_view prefix) {
  const auto has = [&](std::string_view name) {
    return from.arrays.contains(std::string(prefix).append(name));
  };
  if (has("w_enc")) return dictionary_library::gemma_scope_2;
  if (const auto config = settings_beside(from.file)) {
    if (config->has("architecture") || config->has("activation_fn_str"))
      return dictionary_library::saelens;
    if (config->has("num_latents") && has("encoder.weight")) return dictionary_library::sparsify;
    if (config->text("model_kind", "") == "transcoder_set")  // its config.yaml, as a caller says it
      return dictionary_library::circuit_tracer;
  }
  const auto decoder = from.arrays.find(std::string(prefix).append("W_dec"));
  const bool crosses_layers =  // fmoe's own has no b_dec
      decoder != from.arrays.end() && decoder->second.shape().size() == 3 && has("b_dec");
  if (has("activation_function.threshold") || crosses_layers ||
      (!from.file.empty() && has_transcoder_set(from.file.parent_path() / "config.yaml")))
    return dictionary_library::circuit_tracer;
  const auto threshold = from.arrays.find(std::string(prefix).append("threshold"));
  const bool is_of_all = threshold != from.arrays.end() && threshold->second.shape().empty();
  if (has("decoder.weight") || has("k") || is_of_all || from.metadata.contains("dict_class"))
    return dictionary_library::dictionary_learning;
  return dictionary_library::none;
}

FMOE_INLINE dictionary_settings read_dictionary(layer_arrays& from, std::string_view prefix,
                                                tensors_read& read) {
  dictionary_arrays arrays(from, prefix, read);
  switch (library_of(from, prefix)) {
    case dictionary_library::saelens: saelens_reader(arrays, *settings_beside(from.file))(); break;
    case dictionary_library::sparsify: read_sparsify(arrays, *settings_beside(from.file)); break;
    case dictionary_library::dictionary_learning: return read_dictionary_learning(arrays);
    case dictionary_library::circuit_tracer: read_circuit_tracer(arrays); break;
    case dictionary_library::gemma_scope_2: return read_gemma_scope_2(arrays);
    case dictionary_library::none: read_jumprelu(arrays); break;
  }
  return {};
}

}  // namespace fmoe::io
