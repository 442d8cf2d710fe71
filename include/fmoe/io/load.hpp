// SPDX-License-Identifier: MIT
// Makes layers from released weights, and the reverse. The arrays have the names that a layer
// lists, and are transposed if the order of their axes differs. K, the activation, and other
// settings that the layer describes come from the caller or from the file's metadata.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/layer_settings.hpp>
#include <fmoe/io/metadata.hpp>

namespace fmoe::detail {

// load returns this after a static_assert has named the misuse; it converts to any layer, so that
// no other error follows.
struct no_layer {
  template <class Layer>
  operator Layer() const {
    return Layer();
  }
};

}  // namespace fmoe::detail

namespace fmoe {

// The options of `load` and `load_layers`.
struct load_options {
  std::string prefix = {};                 // the text before every name, with its dot
  std::optional<std::size_t> active = {};  // K; `all` for ReLU without a selection
  std::optional<pointwise> activation = {};
  io::narrowing narrow = io::narrowing::refuse;  // io::narrow allows rounding of F64 to float
  std::vector<std::string>* extra =
      nullptr;  // receives the names under the prefix that the layer does not know
};

// The options of `save`.
struct save_options {
  std::string prefix = {};
  std::optional<dtype> type = {};  // element type in the file; by default that of the layer
};

namespace io {

struct layer_arrays {
  std::filesystem::path file;
  strings_by_name metadata;
  arrays_by_name arrays;
};

// Returns the kind of layer that tensors of these names make, or nullopt for a layer without kinds.
// Throws conflict if they make none.
template <class Layer, class Contains>
std::optional<released_kind> kind_of(Contains contains, const std::filesystem::path& file) {
  if constexpr (requires { Layer::released_kinds; }) {
    std::string kinds;
    for (const released_kind& k : Layer::released_kinds) {
      const auto is_there = [&](std::string_view name) { return !name.empty() && contains(name); };
      const bool has_its_own = k.with.empty() || is_there(k.with);
      if (has_its_own && std::ranges::none_of(k.without, is_there)) return k;
      kinds += (kinds.empty() ? "" : ", ") + std::string(k.name);
    }
    throw error(errc::conflict, "holds tensors that make none of " + kinds, 0, {}, file);
  }
  return std::nullopt;
}

// Returns K of a layer, or null if it has none.
template <class Layer>
extent* active_of(Layer& layer) {
  if constexpr (requires { layer.active; }) return &layer.active;
  else if constexpr (requires { layer.route.active; }) return &layer.route.active;
  else return nullptr;
}

// Returns the settings that the metadata told to a layer that describes itself.
template <class Layer>
layer_settings settings_of(Layer& layer, const strings_by_name& metadata) {
  layer_settings said;
  if (const extent* const active = active_of(layer); active != nullptr && metadata.contains("K"))
    said.active = *active;
  if constexpr (requires { layer.activation; })
    if (metadata.contains("activation")) said.activation = layer.activation;
  return said;
}

// Finds the parameters of a layer in the arrays of a file.
class parameter_reader {
 public:
  parameter_reader(const layer_arrays& from, const load_options& options)
      : from_(from),
        options_(options) {}

  bool contains(std::string_view name) const {
    return from_.arrays.contains(options_.prefix + std::string(name));
  }

  // Throws missing_tensor, shape and dtype.
  template <class T, std::size_t Rank>
  void operator()(const released_name& n, parameter<T, Rank>& to) {
    known_.insert(n.name);
    const std::string name = options_.prefix + n.name;
    const auto found = from_.arrays.find(name);
    const bool replaced = !n.unless.empty() && contains(n.unless);
    if (found == from_.arrays.end()) {
      if (n.need == presence::required && !replaced)
        throw error(errc::missing_tensor,
                    "is missing: " + lengths_.text_of(n.file_labels) + " is expected", 0, name,
                    from_.file);
      return;
    }
    if (replaced) return;
    const array& a = found->second;
    lengths_.check(name, n.file_labels, a.shape(), from_.file);
    const std::string flat = without_parentheses(n.file_labels);
    const array split = a.reshaped(lengths_.extents_of(flat));
    to = permuted(split.template get<T, Rank>(options_.narrow), flat, n.layer_labels);
  }

  // Learns the extents of labels from the shape of this tensor. An axis of two labels may need
  // tensors that come later, so this is called repeatedly. Returns true if the tensor tells
  // something new.
  bool learn(const released_name& n) {
    const auto found = from_.arrays.find(options_.prefix + n.name);
    return found != from_.arrays.end() &&
           lengths_.learn(found->first, n.file_labels, found->second.shape());
  }

  // Lists the arrays under the prefix that were not asked for and are not `unused`.
  void list_extra(std::span<const std::string_view> unused) {
    if (options_.extra == nullptr) return;
    known_.insert(unused.begin(), unused.end());
    for (const auto& [name, a] : from_.arrays) {
      if (!name.starts_with(options_.prefix) || name.ends_with("num_batches_tracked")) continue;
      if (!known_.contains(name.substr(options_.prefix.size()))) options_.extra->push_back(name);
    }
  }

 private:
  const layer_arrays& from_;
  const load_options& options_;
  label_extents lengths_;
  std::set<std::string> known_;
};

// Throws missing_tensor, shape, dtype, and conflict and schema for the settings in the metadata.
template <has_released_names Layer>
Layer layer_from(const layer_arrays& from, const load_options& options) {
  Layer layer;
  parameter_reader read(from, options);
  bool news = false;
  auto has_pairs = [&](const released_name& n, auto&) {
    news = news || n.file_labels.find('(') != std::string::npos;
  };
  Layer::released(layer, has_pairs);
  auto learn = [&](const released_name& n, auto&) { news = read.learn(n) || news; };
  while (std::exchange(news, false)) Layer::released(layer, learn);
  Layer::released(layer, read);

  const metadata_reader metadata(from.metadata, from.file);
  describe(layer, metadata, from.file);
  const auto kind =
      kind_of<Layer>([&](std::string_view name) { return read.contains(name); }, from.file);
  const layer_settings said = describes_itself<Layer> ? settings_of(layer, from.metadata)
                                                      : settings_in(from.metadata, from.file);
  const bool is_of_kind =
      !kind || !said.kind || *said.kind == kind->name || *said.kind == kind->also;
  if (!is_of_kind)
    throw error(errc::conflict,
                "has the kind " + in_quotes(*said.kind) + " in its metadata and the tensors of a " +
                    std::string(kind->name),
                0, {}, from.file);
  if (extent* const active = active_of(layer)) {
    *active = agreed(options.active, said.active, "K", from.file).value_or(*active);
  } else if (options.active) {
    throw error(errc::conflict, "is loaded with a K into a layer that has none", 0, {}, from.file);
  }
  if constexpr (requires { layer.activation; }) {
    layer.activation = agreed(options.activation, said.activation, "the activation", from.file)
                           .value_or(layer.activation);
  } else if (options.activation) {
    throw error(errc::conflict, "is loaded with an activation into a layer that has none", 0, {},
                from.file);
  }

  if constexpr (requires { Layer::released_unused; }) read.list_extra(Layer::released_unused);
  else read.list_extra({});
  return layer;
}

template <class Layer>
  requires(!has_released_names<Layer>)
Layer layer_from(const layer_arrays&, const load_options&) {
  static_assert(
      never<Layer>,
      "load makes layers; an array is fmoe::io::safetensors::read(file).get<float, 2>(name)");
  return Layer();
}

// The reverse of parameter_reader: writes the parameters of a layer as arrays of a file.
class parameter_writer {
 public:
  parameter_writer(layer_arrays& to, const save_options& options) : to_(to), options_(options) {}

  bool contains(std::string_view name) const {
    return to_.arrays.contains(options_.prefix + std::string(name));
  }

  // Throws missing_tensor, shape and conflict.
  template <class T, std::size_t Rank>
  void operator()(const released_name& n, const parameter<T, Rank>& from) {
    const std::string name = options_.prefix + n.name;
    if (from.empty()) {
      if (n.need == presence::required)
        throw error(errc::missing_tensor, "is required and the layer's holds nothing", 0, name,
                    to_.file);
      return;
    }
    lengths_.check(name, n.layer_labels, from.shape(), to_.file);
    if (!n.unless.empty() && contains(n.unless)) {
      if (written_[std::string(n.unless)] == from.data()) return;  // the same under its other name
      throw error(errc::conflict, "would be ignored beside " + in_quotes(n.unless), 0, name,
                  to_.file);
    }
    written_[n.name] = from.data();
    const std::string flat = without_parentheses(n.file_labels);
    const tensor<T, Rank> ordered = permuted<T, Rank>(from, n.layer_labels, flat);
    const auto put = [&](const array& a) {
      std::vector<extent> shape;
      for (const std::string& axis : axes_in(n.file_labels))
        shape.push_back(element_count(lengths_.extents_of(axis)));
      to_.arrays.emplace(name,
                         flat == n.file_labels ? a : array(a.type(), std::move(shape), a.bytes()));
    };
    with_type(options_.type.value_or(dtype_of<T>), [&]<class To>(To*) {
      if constexpr (std::is_same_v<To, T>) {
        put(array(ordered));
      } else {
        tensor<To, Rank> converted(ordered.shape());
        for (extent i = 0; i < ordered.size(); ++i)
          converted.data()[i] = round_to<To>(ordered.data()[i]);
        put(array(converted));
      }
    });
  }

 private:
  layer_arrays& to_;
  const save_options& options_;
  label_extents lengths_;
  std::map<std::string, const void*> written_;  // by name
};

// Returns the metadata of a file with this layer; `contains` knows the names in the file. Throws
// conflict for a layer of no kind.
template <class Layer, class Contains>
strings_by_name metadata_of(const Layer& layer, Contains contains,
                            const std::filesystem::path& file) {
  strings_by_name result;
  describe(layer, metadata_writer(result, file), file);
  if (const auto kind = kind_of<Layer>(contains, file)) result["kind"] = kind->name;
  if constexpr (requires { layer.active; }) result["K"] = text_of_active(layer.active);
  if constexpr (requires { layer.activation; })
    result["activation"] = text_of_activation(layer.activation, file);
  return result;
}

// Returns the arrays from which layer_from makes an equal layer. Throws missing_tensor for a
// required parameter that holds nothing, shape for parameters that do not fit together, and
// conflict for a layer of no kind.
template <class Layer>
layer_arrays arrays_of(const Layer& layer, const std::filesystem::path& file,
                       const save_options& options) {
  layer_arrays result{file, {}, {}};
  parameter_writer write(result, options);
  Layer::released(layer, write);
  result.metadata =
      metadata_of(layer, [&](std::string_view name) { return write.contains(name); }, file);
  return result;
}

}  // namespace io
}  // namespace fmoe
