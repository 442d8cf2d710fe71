// SPDX-License-Identifier: MIT
// SAELens: its architectures, read and written. Settings are those of versions 3 to 6.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <fmoe/base/number_text.hpp>
#include <fmoe/io/dictionary_arrays.hpp>

namespace fmoe::io {

// An architecture of SAELens, and the tensors that it has beside W_enc, b_enc, W_dec and b_dec.
struct saelens_architecture {
  std::string_view name;
  std::array<std::string_view, 3> tensors = {};
  bool is_transcoder = false;
  bool selects = false;   // keeps the k greatest units
  bool rescales = false;  // may multiply units with the norms of the decoder's rows
};

inline constexpr saelens_architecture saelens_architectures[] = {
    {"standard"},
    {"topk", {}, false, true, true},
    {"abstopk", {}, false, true, true},
    {"jumprelu", {"threshold"}},
    {"gated", {"b_gate", "r_mag", "b_mag"}},
    {"batchtopk", {"topk_threshold"}, false, false, true},
    {"matryoshka_batchtopk", {"topk_threshold"}, false, false, true},
    {"transcoder", {}, true},
    {"skip_transcoder", {"W_skip"}, true},
    {"jumprelu_transcoder", {"threshold"}, true},
    {"jumprelu_skip_transcoder", {"W_skip", "threshold"}, true},
};

// Reads the arrays of SAELens as its cfg.json says.
class saelens_reader {
 public:
  saelens_reader(dictionary_arrays& arrays, const config_beside& config)
      : arrays_(arrays),
        config_(config) {}

  void operator()() {
    const std::string name = config_.text("architecture", "standard");
    const auto known = std::ranges::find(saelens_architectures, name, &saelens_architecture::name);
    if (known == std::end(saelens_architectures))
      config_.refuse("architecture", "which fmoe does not compute; it computes " + names_known());
    expect_tensors(*known);
    add_units(*known);
    add_scaling(*known);
    const bool subtracts =
        config_.text("apply_b_dec_to_input", known->is_transcoder ? "false" : "true") == "true";
    if (known->is_transcoder && subtracts)
      config_.refuse("apply_b_dec_to_input", "and a transcoder subtracts no bias from x");
    set("apply_b_dec_to_input", subtracts ? "true" : "false");
    if (!subtracts) arrays_.rename("b_dec", "b_dec_out");
    arrays_.rename("W_skip", "W_skip.weight");
  }

 private:
  static std::string names_known() {
    std::string names;
    for (const saelens_architecture& a : saelens_architectures)
      names.append(names.empty() ? "" : ", ").append(a.name);
    return names;
  }
  void set(const std::string& key, const std::string& value) {
    arrays_.set(key, value, config_.where());
  }

  // The tensors that some architectures have and others have not.
  void expect_tensors(const saelens_architecture& known) const {
    for (const saelens_architecture& a : saelens_architectures)
      for (const std::string_view name : a.tensors) {
        if (name.empty()) continue;
        const bool is_there = arrays_.has(name);
        const bool belongs = std::ranges::find(known.tensors, name) != known.tensors.end();
        if (is_there && !belongs)
          throw error(errc::extra_tensor,
                      "belongs to no " + in_quotes(known.name) +
                          ", which is the \"architecture\" " + config_.where(),
                      0, arrays_.name(name), arrays_.file());
        if (!is_there && belongs)
          throw error(errc::missing_tensor,
                      "is missing, and belongs to a " + in_quotes(known.name) +
                          ", which is the \"architecture\" " + config_.where(),
                      0, arrays_.name(name), arrays_.file());
      }
  }

  // Which units are active. Versions before 6 name the function, and its K inside of an object.
  void add_units(const saelens_architecture& known) {
    const std::string function = config_.text("activation_fn_str", known.selects ? "topk" : "relu");
    if (function != "relu" && function != "topk")
      config_.refuse("activation_fn_str", "which fmoe does not compute");
    set("activation", "relu");
    const std::string k = config_.text("k", config_.text("activation_fn_kwargs.k", ""));
    if (function == "relu") set("K", "-1");
    else if (!k.empty()) set("K", k);
    if (known.name == "abstopk") set("abs_topk", "true");
    if (known.rescales && config_.text("rescale_acts_by_decoder_norm", "false") == "true")
      set("rescale_acts_by_decoder_norm", "true");
    arrays_.spread("topk_threshold");
  }

  void add_scaling(const saelens_architecture& known) {
    const std::string scaling = config_.text("normalize_activations", "none");
    if (scaling == "none") return;
    if (scaling != "constant_norm_rescale" && scaling != "layer_norm")
      config_.refuse(
          "normalize_activations",
          "which is no property of one row: fold it into the weights with SAELens first");
    set("normalize_activations", scaling);
    if (known.is_transcoder) set("denormalize_output", "false");
  }

  dictionary_arrays& arrays_;
  const config_beside& config_;
};

// Finds the architecture that computes a layer, and its tensors and settings.
class saelens_writer {
 public:
  explicit saelens_writer(const layer_arrays& from) : from_(from) {
    const std::string kind = said("kind", "");
    if (kind != "sae" && kind != "transcoder" && kind != "skip_transcoder")
      refuse("is no autoencoder and no transcoder");
    for (const auto& [name, a] : from.arrays)
      if (a.type() == element_type::i8) refuse("has weights of 8 bits");
    if (said("groupmax", "false") == "true") refuse("selects a unit of each group");
    if (!is_absolute_ && said("activation", "") != "relu")
      refuse("has the activation " + in_quotes(said("activation", "")) + " in place of relu");
  }

  saelens_files operator()() {
    const bool is_gated = has("b_gate") || has("r_mag") || has("b_mag"), jumps = has("threshold");
    if ((selects_ || is_absolute_) + is_gated + jumps > 1) refuse("selects its units in two ways");
    if (rescales_ && !selects_) refuse("multiplies units that it does not select");
    if (is_gated && has("b_enc")) refuse("has gates beside a bias of the encoder");
    const std::string units = is_gated       ? "gated"
                              : jumps        ? "jumprelu"
                              : is_absolute_ ? "abstopk"
                              : selects_     ? "topk"
                                             : "standard";
    const bool is_transcoder = add_ends(units);
    copy("W_enc", "W_enc");
    copy("W_dec", "W_dec");
    if (is_gated)
      for (const char* name : {"b_gate", "r_mag", "b_mag"}) copy(name, name, units_);
    else copy("b_enc", "b_enc", units_);
    if (jumps) copy("threshold", "threshold");
    const std::string ending =
        is_transcoder ? has("W_skip.weight") ? "skip_transcoder" : "transcoder" : "";
    config_["architecture"] = !is_transcoder ? units : jumps ? "jumprelu_" + ending : ending;
    config_["d_in"] = inputs_;
    config_["d_sae"] = units_;
    if (is_transcoder) config_["d_out"] = outputs_;
    if (units == "topk" || units == "abstopk") {
      extent k = units_;
      is_number(said("K", ""), k);
      config_["k"] = k;
      config_["rescale_acts_by_decoder_norm"] = rescales_;
    }
    config_["normalize_activations"] = scaling_;
    config_["reshape_activations"] = "none";
    config_["dtype"] = name_of_dtype();
    config_["device"] = "cpu";
    config_["metadata"] = nlohmann::json::object();
    return {std::move(to_), config_.dump(2) + '\n'};
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw error(errc::conflict, why + ": no architecture of SAELens has that", 0, {}, from_.file);
  }
  std::string said(const std::string& key, const std::string& unsaid) const {
    const auto at = from_.metadata.find(key);
    return at == from_.metadata.end() ? unsaid : at->second;
  }
  bool has(const std::string& name) const { return from_.arrays.contains(name); }

  void copy(const std::string& name, const std::string& as) {
    if (has(name)) to_.emplace(as, from_.arrays.at(name));
  }
  // The same for a bias, which SAELens has always: zeros where the layer has none.
  void copy(const std::string& name, const std::string& as, extent length) {
    copy(name, as);
    if (!has(name)) to_.emplace(as, tensor<float, 1>({length}));
  }

  // Adds the biases of input and output and the skip. Returns true for a transcoder.
  bool add_ends(const std::string& units) {
    const bool is_sae = said("kind", "") == "sae", skips = has("W_skip.weight");
    const bool has_transcoder = units == "standard" || units == "jumprelu";
    const bool scales_back = scaling_ != "none" && said("denormalize_output", "true") == "true";
    const bool is_transcoder = !is_sae && has_transcoder && !scales_back;
    if (!is_transcoder && inputs_ != outputs_)
      refuse("has " + units + " units and other outputs than inputs");
    if (!is_transcoder && skips) refuse("has " + units + " units and a skip");
    if (!is_transcoder && scaling_ != "none" && !scales_back)
      refuse("normalises x and does not scale y back");
    config_["apply_b_dec_to_input"] = is_sae;
    copy(is_sae ? "b_dec" : "b_dec_out", "b_dec", outputs_);
    copy("W_skip.weight", "W_skip");
    return is_transcoder;
  }

  std::string name_of_dtype() const {
    switch (from_.arrays.at("W_enc").type()) {
      case element_type::f64: return "float64";
      case element_type::f16: return "float16";
      case element_type::bf16: return "bfloat16";
      default: return "float32";
    }
  }

  const layer_arrays& from_;
  const extent inputs_ = from_.arrays.at("W_enc").shape()[0],
               units_ = from_.arrays.at("W_enc").shape()[1],
               outputs_ = from_.arrays.at("W_dec").shape()[1];
  const bool is_absolute_ = said("abs_topk", "false") == "true",
             selects_ = said("K", "-1") != "-1" || is_absolute_,
             rescales_ = said("rescale_acts_by_decoder_norm", "false") == "true";
  const std::string scaling_ = said("normalize_activations", "none");
  arrays_by_name to_;
  nlohmann::json config_;
};

FMOE_INLINE saelens_files saelens_files_of(const layer_arrays& from) {
  if (!from.arrays.contains("W_enc") || !from.arrays.contains("W_dec"))
    throw error(errc::conflict, "is no autoencoder and no transcoder, as SAELens has them", 0, {},
                from.file);
  return saelens_writer(from)();
}

}  // namespace fmoe::io
