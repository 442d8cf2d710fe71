// SPDX-License-Identifier: MIT
// Makes layers from released weights, and the reverse. The arrays have the names that a layer
// lists, and are transposed if the order of their axes differs. K, the activation, and other
// settings that the layer describes come from the caller or from the file's metadata.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/released_layer.hpp>

namespace fmoe::detail {

// load returns this after a static_assert has named the misuse; it converts to any layer, so that
// no other error follows.
struct no_layer {
  template <class Layer>
  operator Layer() const {
    return Layer();
  }
};

// A narrowing, as load_options take it; it refuses a bool with a sentence.
class narrowing_option {
 public:
  narrowing_option(io::narrowing value) : value_(value) {}
  template <std::same_as<bool> Bool>
  narrowing_option(Bool) : value_(io::narrowing::refuse) {
    static_assert(never<Bool>, "load: {.narrow = fmoe::io::narrow} allows rounding");
  }
  operator io::narrowing() const { return value_; }

 private:
  io::narrowing value_;
};

// Options with the name that K has in papers and files, {.K = 32}, which load refuses.
struct misnamed_options {
  struct number {
    number(std::integral auto) {}
  } K;
};

}  // namespace fmoe::detail

namespace fmoe {

// The options of `load` and `load_layers`.
struct load_options {
  std::string prefix = {};                 // the text before every name, with its dot
  std::optional<std::size_t> active = {};  // K; `all` for ReLU without a selection
  std::optional<pointwise> activation = {};
  detail::narrowing_option narrow = io::narrowing::refuse;  // io::narrow lets F64 become float
  // Weights of the layer's type stay in the file, and take no memory: the file is mapped, and must
  // be left as it is while the layer lives. Those with axes in another order are copied when their
  // elements are read, which packing a product does not.
  bool mapped = false;
  // Receives the names of tensors of the layer that nothing reads, which load refuses otherwise.
  std::vector<std::string>* extra = nullptr;
  // What the metadata of the file would say, for a file that does not: {{"activation", "gelu"}}.
  std::map<std::string, std::string> metadata = {};
};

// What `save` writes: fmoe's own file, with the settings in its metadata, or the folder of SAELens,
// sae_weights.safetensors and cfg.json.
enum class file_form : std::uint8_t { fmoe, saelens };

// The options of `save`.
struct save_options {
  std::string prefix = {};
  // The element type in the file; by default that of the layer. It rounds no router of a moe, nor
  // what else chooses experts there.
  std::optional<dtype> type = {};
  file_form form = file_form::fmoe;
};

namespace io {

struct layer_arrays {
  std::filesystem::path file;
  strings_by_name metadata;
  arrays_by_name arrays;
  // All names of the file, for messages, if these are not those of the arrays.
  std::function<std::vector<std::string>()> names = {};
  std::set<std::string> disputed = {};    // keys on whose values the metadata of its files differ
  std::set<std::string> transposed = {};  // matrices with their axes in the other order
};

// Fills a layer that holds nothing. Throws missing_tensor, shape, dtype, and conflict and schema
// for the settings in the metadata; extra_tensor for a tensor of the layer that nothing reads,
// unless the options have a list for its name; missing_setting for a setting that the layer needs
// and neither the options nor the file tell.
void fill(const released_layer& layer, const layer_arrays& from, const load_options& options);

// The same with what is there: it asks neither for settings nor for the tensors that it leaves.
void fill_part(const released_layer& layer, const layer_arrays& from, const load_options& options);

template <has_released_names Layer>
Layer layer_from(const layer_arrays& from, const load_options& options) {
  Layer layer;
  fill(released_layer(layer), from, options);
  return layer;
}

template <class Layer>
  requires(!has_released_names<Layer>)
Layer layer_from(const layer_arrays&, const load_options&) {
  constexpr bool is_array = requires(const Layer& layer) { layer.shape(); };
  static_assert(
      !is_array,
      "load makes layers; an array is fmoe::io::safetensors::read(file).get<float, 2>(name)");
  static_assert(is_array,
                "load: the layer has no function released(layer, visit), which names its weights: "
                "docs/adding_a_layer.md shows one");
  return Layer();
}

// Gives a layer whose parameters are set the settings of another one of its kind.
void copy_settings(const released_layer& from, const released_layer& to);

// Tells whether a file has a tensor of this name.
using has_tensor = std::function<bool(std::string_view name)>;

// Returns the kind of layer that these tensors make, or null if they make none.
const released_kind* kind_of(std::span<const released_kind> kinds, const has_tensor& contains);

// Returns the metadata of a file with this layer and these tensors. Throws conflict for a layer of
// no kind.
strings_by_name metadata_of(const released_layer& layer, const has_tensor& contains,
                            const std::filesystem::path& file);

// Returns the arrays from which layer_from makes an equal layer. Throws missing_tensor for a
// required parameter that holds nothing, shape for parameters that do not fit together, and
// conflict for a layer of no kind.
layer_arrays arrays_of(const released_layer& layer, const std::filesystem::path& file,
                       const save_options& options);

template <has_released_names Layer>
layer_arrays arrays_of(const Layer& layer, const std::filesystem::path& file,
                       const save_options& options) {
  return arrays_of(released_layer(detail::only_listed(layer)), file, options);
}

}  // namespace io
}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/load-inl.hpp>
#endif
