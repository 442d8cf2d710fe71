// SPDX-License-Identifier: MIT
// Reads and writes safetensors files: named arrays after a JSON header. An accepted file is
// consistent: its names are unique, and its arrays cover the data without gaps and overlaps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/io/named_arrays.hpp>

namespace fmoe::io {

class input;

// The arrays of one file.
class safetensors : public named_arrays {
 public:
  // Throws io::error. It checks the header before it allocates memory for the data, and beside its
  // result takes memory for a few times the bytes of the header.
  static safetensors read(const std::filesystem::path& file);

  // Copies the bytes; `file` is used only in messages.
  static safetensors parse(std::span<const std::byte> bytes,
                           const std::filesystem::path& file = {});

  strings_by_name metadata() const { return metadata_; }

  // Throws whatever reading the result would throw, before anything is written. If this fails, an
  // old file stays unchanged. Links and killed programs are as for fmoe::save.
  static void write(const std::filesystem::path& file, const arrays_by_name& arrays,
                    const strings_by_name& metadata = {});
  static std::vector<std::byte> serialize(const arrays_by_name& arrays,
                                          const strings_by_name& metadata = {});

 private:
  explicit safetensors(const input& in);

  strings_by_name metadata_;
};

// Writes the arrays of a layer in this form: its file, or what its folder holds, which is made if
// it is not there. Throws io, and conflict for a layer that the form cannot hold.
void write_layer(const layer_arrays& from, const std::filesystem::path& file, file_form form);

// Returns all that the file holds, to make a layer from it.
layer_arrays arrays_in(const safetensors& weights);

// The same for a safetensors or a GGUF file, whose first bytes tell which it is.
layer_arrays arrays_in(const std::filesystem::path& file);

}  // namespace fmoe::io

namespace fmoe {

// Makes a layer from released weights. Throws io::error: missing_tensor, shape and dtype with the
// name of the tensor; conflict if the options, the metadata and the names in the file contradict
// each other; schema for metadata that cannot be understood.
//
//   const auto trained = load<mxd<>>("mxd.safetensors", {.active = 32});
//   const auto third = load<mxd<bf16>>("model.safetensors", {.prefix = "model.layers.3."});
template <class Layer>
Layer load(const io::safetensors& weights, const load_options& options = {}) {
  return io::layer_from<Layer>(io::arrays_in(weights), options);
}
// The same for the path of a safetensors or a GGUF file.
template <class Layer>
Layer load(const std::filesystem::path& file, const load_options& options = {}) {
  return io::layer_from<Layer>(io::arrays_in(file), options);
}

// These refuse a call without the type, without its brackets, or with something else than options.
template <std::size_t = 0, class... Arguments>
detail::no_layer load(const Arguments&...) {
  static_assert(detail::never<Arguments...>,
                "load: say the layer's type, as in fmoe::load<fmoe::mxd<>>(file)");
  return {};
}
template <template <class...> class Layer, class... Arguments>
detail::no_layer load(const Arguments&...) {
  static_assert(detail::never<Arguments...>,
                "load: a layer's type has brackets, as in fmoe::load<fmoe::mxd<>>(file)");
  return {};
}
template <template <std::size_t, class> class Layer, class... Arguments>
detail::no_layer load(const Arguments&...) {
  static_assert(detail::never<Arguments...>,
                "load: a layer's type has brackets, as in fmoe::load<fmoe::cp_mumoe<>>(file)");
  return {};
}
template <class Layer, class Weights>
Layer load(const Weights&, const detail::misnamed_options&) {
  static_assert(detail::never<Layer>,
                "load: K is .active, as in fmoe::load<fmoe::mxd<>>(file, {.active = 32})");
  return Layer();
}
template <class Layer, class Weights, class Options>
  requires(!std::convertible_to<const Options&, load_options>)
Layer load(const Weights&, const Options&) {
  static_assert(detail::never<Layer>,
                "load: options are named, as in fmoe::load<fmoe::mxd<>>(file, {.active = 32})");
  return Layer();
}

// Writes a file from which load makes an equal layer. If the file is a symbolic link, the link is
// replaced, and what it leads to stays unchanged. A program that is killed while it saves may leave
// a file named .fmoe-... beside the old one, which may be removed.
//
//   save(layer, "copy.safetensors");
//   save(layer, "half.safetensors", {.type = dtype::bfloat16});
//   save(layer, "folder", {.form = file_form::saelens});  // a sparse_mlp
template <class Layer>
void save(const Layer& layer, const std::filesystem::path& file, const save_options& options = {}) {
  constexpr bool is_array = requires { layer.shape(); }, is_edited = requires { layer.layer; };
  static_assert(!is_array,
                "save writes layers; an array is fmoe::io::safetensors::write(file, {{name, x}})");
  static_assert(!is_edited,
                "save: a file holds weights and no edit: save the original layer, and edit it "
                "after load");
  static_assert(is_array || is_edited || detail::has_released_names<Layer>,
                "save: the layer has no function released(layer, visit), which names its weights: "
                "docs/adding_a_layer.md shows one");
  if constexpr (detail::has_released_names<Layer>)
    io::write_layer(io::arrays_of(layer, file, options), file, options.form);
}
template <detail::has_released_names Layer, class Options>
  requires(!std::convertible_to<const Options&, save_options>)
void save(const Layer&, const std::filesystem::path&, const Options&) {
  static_assert(detail::never<Options>,
                "save: options are named, as in fmoe::save(layer, file, {.type = "
                "fmoe::dtype::bfloat16})");
}
template <std::convertible_to<std::filesystem::path> File, detail::has_released_names Layer>
void save(const File&, const Layer&, const save_options& = {}) {
  static_assert(detail::never<Layer>,
                "save: the layer comes before the file, as in fmoe::save(layer, file)");
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/safetensors-inl.hpp>
#endif
