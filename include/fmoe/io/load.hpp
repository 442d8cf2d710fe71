// SPDX-License-Identifier: MIT
// Layers from released weights and back: arrays under the names that a layer lists, transposed where its axes are in
// another order, with K and the activation from the caller or the file's metadata, or what else the layer describes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmoe/io/array.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/layer_settings.hpp>
#include <fmoe/io/safetensors_layout.hpp>
#include <fmoe/released.hpp>

namespace fmoe {

struct load_options {
  std::string prefix = {};            // before every name, with its dot
  std::optional<extent> active = {};  // K; `all` for ReLU alone
  std::optional<pointwise> activation = {};
  io::narrowing narrow = io::narrowing::refuse;  // io::narrow lets F64 be rounded to float
  std::vector<std::string>* extra = nullptr;     // receives the names under the prefix that the layer does not know
};

struct save_options {
  std::string prefix = {};
  std::optional<dtype> type = {};  // of the file's elements; unless said, the layer's
};

namespace io {

struct layer_arrays {
  std::filesystem::path file;
  strings_by_name metadata;
  arrays_by_name arrays;
};

// The kind that the tensors named so make, none for a layer without kinds. Throws conflict if they make none.
template <class Layer, class Contains>
std::optional<released_kind> kind_of(Contains contains, const std::filesystem::path& file) {
  if constexpr (requires { Layer::released_kinds; }) {
    std::string kinds;
    for (const released_kind& k : Layer::released_kinds) {
      const auto is_there = [&](std::string_view name) { return !name.empty() && contains(name); };
      if ((k.with.empty() || is_there(k.with)) && std::ranges::none_of(k.without, is_there)) return k;
      kinds += (kinds.empty() ? "" : ", ") + std::string(k.name);
    }
    throw error(errc::conflict, "holds tensors that make none of " + kinds, 0, {}, file);
  }
  return std::nullopt;
}

// A layer whose metadata is its own: describe(layer, file) tells it setting by setting and fact by fact.
template <class Layer>
concept describes_itself = requires(Layer& layer, const metadata_reader& file) { Layer::describe(layer, file); };

// Throws missing_tensor, shape, dtype, and conflict and schema for what the metadata says.
template <class Layer>
Layer layer_from(const layer_arrays& from, const load_options& options) {
  Layer layer;
  label_extents lengths;
  std::set<std::string_view> known;
  const auto contains = [&](std::string_view name) { return from.arrays.contains(options.prefix + std::string(name)); };
  const auto read = [&]<class T, std::size_t Rank>(const auto& n, parameter<T, Rank>& to) {
    known.insert(n.name);
    const std::string name = options.prefix + std::string(n.name);
    const auto found = from.arrays.find(name);
    const bool replaced = !n.unless.empty() && contains(n.unless);
    if (found == from.arrays.end()) {
      if (n.need == presence::required && !replaced)
        throw error(errc::missing_tensor, "is missing: " + lengths.text_of(n.file_labels) + " is expected", 0, name,
                    from.file);
      return;
    }
    if (replaced) return;
    const array& a = found->second;
    lengths.check(name, n.file_labels, a.shape(), from.file);
    const std::string flat = without_parentheses(n.file_labels);
    const array split = flat == n.file_labels ? a : array(a.type(), lengths.extents_of(flat), a.bytes());
    to = permuted(split.template get<T, Rank>(options.narrow), flat, without_parentheses(n.layer_labels));
  };
  const auto released = Layer::released();
  // What an axis of two labels is made of may follow from tensors that come later.
  const auto learn = [&](const auto& n) {
    const auto found = from.arrays.find(options.prefix + n.name);
    return found != from.arrays.end() && lengths.learn(found->first, n.file_labels, found->second.shape());
  };
  const bool composite = std::apply([](const auto&... n) { return ((n.file_labels.find('(') != std::string::npos) || ...); }, released);
  while (composite && std::apply([&](const auto&... n) { return (static_cast<int>(learn(n)) + ...); }, released) != 0) {
  }
  std::apply([&](const auto&... n) { (read(n, std::invoke(n.member, layer)), ...); }, released);

  const metadata_reader metadata(from.metadata, from.file);
  describe(layer, metadata, from.file);
  const auto kind = kind_of<Layer>(contains, from.file);
  const layer_settings said = describes_itself<Layer> ? layer_settings() : settings_in(from.metadata, from.file);
  if (kind && said.kind && *said.kind != kind->name && *said.kind != kind->also)
    throw error(
        errc::conflict,
        "has the kind " + in_quotes(*said.kind) + " in its metadata and the tensors of a " + std::string(kind->name), 0,
        {}, from.file);
  if constexpr (requires { layer.active; }) {
    layer.active = agreed(options.active, said.active, "K", from.file).value_or(layer.active);
  } else if (options.active) {
    throw error(errc::conflict, "is loaded with a K into a layer that has none", 0, {}, from.file);
  }
  if constexpr (requires { layer.activation; }) {
    layer.activation =
        agreed(options.activation, said.activation, "the activation", from.file).value_or(layer.activation);
  } else if (options.activation) {
    throw error(errc::conflict, "is loaded with an activation into a layer that has none", 0, {}, from.file);
  }

  if (options.extra != nullptr) {
    if constexpr (requires { Layer::released_unused; })
      known.insert(Layer::released_unused.begin(), Layer::released_unused.end());
    for (const auto& [name, a] : from.arrays)
      if (name.starts_with(options.prefix) && !name.ends_with("num_batches_tracked") &&
          !known.contains(std::string_view(name).substr(options.prefix.size())))
        options.extra->push_back(name);
  }
  return layer;
}

// What layer_from makes the layer of again. Throws missing_tensor for a required parameter that holds nothing, shape
// for parameters that do not fit together, conflict for a layer of no kind.
template <class Layer>
layer_arrays arrays_of(const Layer& layer, const std::filesystem::path& file, const save_options& options) {
  layer_arrays result{file, {}, {}};
  label_extents lengths;
  std::map<std::string, const void*, std::less<>> written;  // by name
  const auto contains = [&](std::string_view name) {
    return result.arrays.contains(options.prefix + std::string(name));
  };
  const auto write = [&]<class T, std::size_t Rank>(const auto& n, const parameter<T, Rank>& from) {
    const std::string name = options.prefix + std::string(n.name);
    if (from.empty()) {
      if (n.need == presence::required)
        throw error(errc::missing_tensor, "is required and the layer's holds nothing", 0, name, file);
      return;
    }
    const std::string flat = without_parentheses(n.file_labels), order = without_parentheses(n.layer_labels);
    lengths.check(name, order, from.shape(), file);
    if (!n.unless.empty() && contains(n.unless)) {
      if (written[std::string(n.unless)] == from.data()) return;  // the same under its other name
      throw error(errc::conflict, "would be ignored beside " + in_quotes(n.unless), 0, name, file);
    }
    written[n.name] = from.data();
    const tensor<T, Rank> ordered = permuted<T, Rank>(from, order, flat);
    const auto put = [&](const array& a) {
      std::vector<extent> shape;
      for (const std::string& axis : axes_in(n.file_labels)) shape.push_back(element_count(lengths.extents_of(axis)));
      result.arrays.emplace(name, flat == n.file_labels ? a : array(a.type(), std::move(shape), a.bytes()));
    };
    with_type(options.type.value_or(dtype_of<T>), [&]<class To>(To*) {
      if constexpr (std::is_same_v<To, T>) {
        put(array(ordered));
      } else {
        tensor<To, Rank> converted(ordered.shape());
        for (extent i = 0; i < ordered.size(); ++i) converted.data()[i] = round_to<To>(ordered.data()[i]);
        put(array(converted));
      }
    });
  };
  std::apply([&](const auto&... n) { (write(n, std::invoke(n.member, layer)), ...); }, Layer::released());

  const metadata_writer metadata(result.metadata, file);
  describe(layer, metadata, file);
  if (const auto kind = kind_of<Layer>(contains, file)) result.metadata["kind"] = kind->name;
  if constexpr (requires { layer.active; }) result.metadata["K"] = text_of_active(layer.active);
  if constexpr (requires { layer.activation; })
    result.metadata["activation"] = text_of_activation(layer.activation, file);
  return result;
}

}  // namespace io
}  // namespace fmoe
