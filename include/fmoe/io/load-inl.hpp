// SPDX-License-Identifier: MIT
// How arrays of a file become the parameters of a layer, and the reverse.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmoe/base/error.hpp>
#include <fmoe/io/axes.hpp>
#include <fmoe/io/config_file.hpp>
#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/hints.hpp>
#include <fmoe/io/layer_settings.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/scaled_arrays.hpp>
#include <fmoe/io/tensors_read.hpp>

namespace fmoe::io {

// Finds the parameters of a layer in the arrays of a file.
class parameter_reader {
 public:
  parameter_reader(const layer_arrays& from, const load_options& options)
      : from_(from),
        options_(options) {}

  bool contains(std::string_view name) const {
    return from_.arrays.contains(options_.prefix + std::string(name));
  }

  // Learns the extents of labels. An axis of two labels may need tensors that come later, so the
  // tensors are asked until none of them tells something new.
  void learn(std::span<const released_parameter> parameters) {
    for (const released_parameter& p : parameters) known_.insert(p.name.name);
    bool news = std::ranges::any_of(parameters, [](const released_parameter& p) {
      return p.name.file_labels.find('(') != std::string::npos;
    });
    while (std::exchange(news, false))
      for (const released_parameter& p : parameters) news = learn(p.name) || news;
  }

  // Throws missing_tensor, shape and dtype.
  void read(const released_parameter& p) {
    const released_name& n = p.name;
    const std::string name = options_.prefix + n.name;
    const auto found = from_.arrays.find(name);
    const bool replaced = !n.unless.empty() && contains(n.unless);
    if (found == from_.arrays.end()) {
      if (n.need == presence::required && !replaced)
        throw error(errc::missing_tensor,
                    "is missing" + (n.unless.empty() ? "" : ", and so is " + in_quotes(n.unless)) +
                        ": " + lengths_.text_of(n.file_labels) + " is expected" +
                        hint_of_names(n.name, options_.prefix, names(), n.unless, known_),
                    0, name, from_.file);
      return;
    }
    if (replaced) return;
    read_.insert(name);
    const array& a = found->second;
    const std::string labels = labels_in_file(n);
    lengths_.check(name, labels, a.shape(), from_.file);
    const std::string flat = without_parentheses(labels);
    const array flat_array = a.reshaped(lengths_.extents_of(flat));
    // What is written in another order needs no copy of its own before.
    const bool is_in_place = options_.mapped || a.is_lasting() || flat != n.layer_labels;
    std::optional<any_tensor> elements =
        is_in_place ? flat_array.elements_in_place(p.parameter.type()) : std::nullopt;
    const bool lasts = elements && (options_.mapped || a.is_lasting());
    if (!elements) elements = elements_as(p.parameter.type(), flat_array, name);
    p.parameter.assign(lasts ? permuted_when_read(*elements, flat, n.layer_labels)
                             : permuted(*elements, flat, n.layer_labels));
  }

  // The names that were read.
  const tensors_read& has_read() const { return read_; }

 private:
  // Weights of 8 bits are widened for a parameter of floating-point numbers.
  any_tensor elements_as(dtype type, const array& a, const std::string& name) {
    const std::vector<extent> of_any_shape(a.shape().size(), all);
    const auto scales = from_.arrays.find(name_of_scales(name));
    const auto refuse = [&](const std::string& why) -> any_tensor {
      throw error(errc::dtype, "is " + std::string(name_of(a.type())) + why, 0, name, from_.file);
    };
    if (type == dtype::q8)
      if (auto stored = quantized_from(a, a.shape())) return *std::move(stored);
    if (a.type() != element_type::i8 || scales == from_.arrays.end()) {
      if (is_quantized_type(type))
        return refuse(
            " without scales of 8-bit weights: load the layer in floats, and "
            "fmoe::quantize makes one of 8 bits");
      return a.elements_as(type, of_any_shape, options_.narrow);
    }
    read_.insert(name_of_scales(name));
    const auto stored = quantized_from(a, scales->second, a.shape());
    if (!stored)
      return refuse(" " + text_of(a.shape()) + " and its scales " +
                    std::string(name_of(scales->second.type())) + ' ' +
                    text_of(scales->second.shape()) +
                    ", which is neither one F16 for 32 weights along an axis nor one F32 for all");
    if (stored->type == type) return *stored;
    if (is_quantized_type(type))
      return refuse(std::string(" in the layout of ") + fmoe::name_of(stored->type) + ", and " +
                    fmoe::name_of(type) + " is expected");
    const array floats = a.is_outline()
                             ? array::outline(element_type::f32, a.shape(), name, nullptr)
                             : array(as_floats(*stored));
    return floats.elements_as(type, of_any_shape, options_.narrow);
  }

  bool learn(const released_name& n) {
    const auto found = from_.arrays.find(options_.prefix + n.name);
    return found != from_.arrays.end() &&
           lengths_.learn(found->first, labels_in_file(n), found->second.shape());
  }

  std::string labels_in_file(const released_name& n) const {
    const bool is_transposed = from_.transposed.contains(options_.prefix + n.name);
    return is_transposed ? std::string(n.file_labels.rbegin(), n.file_labels.rend())
                         : n.file_labels;
  }

  std::vector<std::string> names() const {
    if (from_.names) return from_.names();
    std::vector<std::string> result;
    for (const auto& [name, a] : from_.arrays) result.push_back(name);
    return result;
  }

  const layer_arrays& from_;
  const load_options& options_;
  label_extents lengths_;
  std::set<std::string> known_;
  tensors_read read_;
};

// The reverse of parameter_reader: writes the parameters of a layer as arrays of a file.
class parameter_writer {
 public:
  parameter_writer(layer_arrays& to, const save_options& options) : to_(to), options_(options) {}

  bool contains(std::string_view name) const {
    return to_.arrays.contains(options_.prefix + std::string(name));
  }

  // Throws missing_tensor, shape and conflict. `is_replaced` says that the layer holds what stands
  // in the place of this parameter.
  void write(const released_parameter& p, bool is_replaced) {
    const released_name& n = p.name;
    const std::string name = options_.prefix + n.name;
    const any_tensor value = p.parameter.value();
    if (value.empty()) {
      if (n.need == presence::required && !is_replaced)
        throw error(errc::missing_tensor, "is required and the layer's holds nothing", 0, name,
                    to_.file);
      return;
    }
    lengths_.check(name, n.layer_labels, value.shape, to_.file);
    const void* const data = value.elements->data();
    if (!n.unless.empty() && contains(n.unless)) {
      if (written_[std::string(n.unless)] == data) return;  // the same under its other name
      throw error(errc::conflict, "would be ignored beside " + in_quotes(n.unless), 0, name,
                  to_.file);
    }
    written_[n.name] = data;
    const any_tensor t = permuted(value, n.layer_labels, without_parentheses(n.file_labels));
    const dtype asked = options_.type.value_or(value.type);
    const dtype type = n.rounded || is_widening(value.type, asked) ? asked : value.type;
    std::vector<extent> joined;
    for (const std::string& axis : axes_in(n.file_labels))
      joined.push_back(element_count(lengths_.extents_of(axis)));
    if (is_quantized_type(type)) {
      if (type != value.type)
        throw error(errc::conflict,
                    std::string("is ") + fmoe::name_of(value.type) +
                        ": fmoe::quantize makes a layer of 8-bit weights, which is saved so",
                    0, name, to_.file);
      auto [integers, scales] = arrays_of(t);
      to_.arrays.emplace(name, integers.reshaped(std::move(joined)));
      to_.arrays.emplace(name_of_scales(name), std::move(scales));
      return;
    }
    array a(is_quantized_type(t.type) ? as_floats(t) : t);
    if (dtype_of_elements(a.type()) != type) a = array(a.elements_as(type, a.shape(), narrow));
    to_.arrays.emplace(name, a.reshaped(std::move(joined)));
  }

 private:
  layer_arrays& to_;
  const save_options& options_;
  label_extents lengths_;
  std::map<std::string, const void*> written_;  // by name
};

// Lets the layer describe itself. If it finds itself wrong, the fault becomes an io::error.
template <class Metadata>
void describe(const released_layer& layer, const Metadata& metadata,
              const std::filesystem::path& file) {
  try {
    layer.describe(metadata);
  } catch (const shape_error& e) {
    throw error(errc::shape, e.what(), 0, {}, file);
  } catch (const value_error& e) {
    throw error(errc::conflict, e.what(), 0, {}, file);
  }
}

FMOE_INLINE const released_kind* kind_of(std::span<const released_kind> kinds,
                                         const has_tensor& contains) {
  const auto is_there = [&](std::string_view name) { return !name.empty() && contains(name); };
  const auto fits = [&](const released_kind& k) {
    const bool has_its_own = k.with.empty() || is_there(k.with);
    return has_its_own && std::ranges::none_of(k.without, is_there);
  };
  const auto found = std::ranges::find_if(kinds, fits);
  return found == kinds.end() ? nullptr : &*found;
}

// Returns null for a layer without kinds. Throws conflict if the tensors make none of its kinds.
inline const released_kind* expected_kind(const released_layer& layer, const has_tensor& contains,
                                          const std::filesystem::path& file) {
  const released_kind* const kind = kind_of(layer.kinds, contains);
  if (kind != nullptr || layer.kinds.empty()) return kind;
  std::string kinds;
  for (const released_kind& k : layer.kinds) kinds.append(kinds.empty() ? "" : ", ").append(k.name);
  throw error(errc::conflict, "holds tensors that make none of " + kinds, 0, {}, file);
}

// Returns the settings that the metadata tell. A layer that describes itself has read those that it
// asked for.
inline layer_settings settings_of(const released_layer& layer, const layer_arrays& from,
                                  const std::set<std::string>& asked) {
  strings_by_name unread = from.metadata;
  for (const std::string& key : asked) unread.erase(key);
  layer_settings said = settings_in(unread, from.file);
  const auto has_read = [&](const char* key) {
    return asked.contains(key) && from.metadata.contains(key);
  };
  if (layer.active != nullptr && has_read("K"))
    said.active = agreed<extent>(*layer.active, said.active, "k", from.file, "its K");
  if (layer.activation != nullptr && has_read("activation")) said.activation = *layer.activation;
  return said;
}

// Returns the settings that the layer needs and that neither the metadata nor the options tell: K
// of a layer that does not describe it, and what its description names.
inline std::set<std::string> unsaid(const released_layer& layer, const layer_arrays& from,
                                    const load_options& options, const layer_settings& said,
                                    const metadata_reader& described) {
  std::set<std::string> missing = described.needs();
  if (layer.active != nullptr && !described.asked().contains("K")) missing.insert("K");
  std::erase_if(missing, [&](const std::string& key) {
    const bool is_known = key == "K" ? said.active || options.active
                                     : key == "activation" && layer.activation != nullptr &&
                                           (said.activation || options.activation);
    return is_known || from.metadata.contains(key);
  });
  return missing;
}

// Throws conflict if the metadata name another kind than that of the tensors, or, for a layer
// without kinds, a kind of another layer.
inline void check_kind(const layer_settings& said, const released_kind* kind,
                       const std::filesystem::path& file) {
  if (!said.kind) return;
  const auto refuse = [&](const std::string& why) {
    throw error(errc::conflict, "has the kind " + in_quotes(*said.kind) + " in its metadata" + why,
                0, {}, file);
  };
  if (kind == nullptr && is_kind(*said.kind)) refuse(", which is another layer's");
  if (kind != nullptr && *said.kind != kind->name && *said.kind != kind->also)
    refuse(" and the tensors of a " + std::string(kind->name));
}

// Sets K and the activation of the layer as the caller or the metadata say. Throws conflict if they
// contradict each other, and if the caller asks for one that the layer does not have.
inline void apply_settings(const released_layer& layer, const layer_settings& said,
                           const load_options& options, const std::filesystem::path& file) {
  if (layer.active != nullptr)
    *layer.active = agreed(options.active, said.active, "K", file,
                           "asked for: set the layer's `active` after load instead")
                        .value_or(*layer.active);
  else if (options.active)
    throw error(errc::conflict, "is loaded with a K into a layer that has none", 0, {}, file);
  if (layer.activation != nullptr)
    *layer.activation = agreed(options.activation, said.activation, "the activation", file,
                               "asked for: set the layer's `activation` after load instead")
                            .value_or(*layer.activation);
  else if (options.activation)
    throw error(errc::conflict, "is loaded with an activation into a layer that has none", 0, {},
                file);
}

// Looks at the keys of the metadata that were asked for and those that every file may have. Throws
// conflict if the files dispute one of them, and schema for a key that is meant to be one of them.
inline void check_keys(const layer_arrays& from, const std::set<std::string>& asked) {
  std::vector<std::string> known(asked.begin(), asked.end());
  known.insert(known.end(), {"K", "activation", "k", "kind", "selection"});
  for (const std::string& key : known)
    if (from.disputed.contains(key))
      throw error(errc::conflict,
                  "has shards with different texts for " + in_quotes(key) + " in their metadata", 0,
                  {}, from.file);
  for (const auto& [key, value] : from.metadata)
    if (const auto meant = meant_by(key, known))
      throw error(errc::schema,
                  "has " + in_quotes(key) +
                      " in its metadata, which is not known: " + in_quotes(*meant) + " is",
                  0, {}, from.file);
}

// Throws conflict for a setting that the caller says and the layer does not have.
inline void check_said(const released_layer& layer, const load_options& options,
                       const std::set<std::string>& asked, const std::filesystem::path& file) {
  for (const auto& [key, text] : options.metadata) {
    const bool is_of_all =
        (layer.active != nullptr && (key == "K" || key == "k" || key == "selection")) ||
        (layer.activation != nullptr && key == "activation") ||
        (!layer.kinds.empty() && key == "kind");
    if (!is_of_all && !asked.contains(key))
      throw error(errc::conflict,
                  "is loaded with " + key + " = " + in_quotes(text) +
                      " into a layer that has no such setting",
                  0, {}, file);
  }
}

// Sets what the tensors of the layer do not tell, as the metadata and the options say. Returns the
// settings that are missing.
inline std::set<std::string> fill_settings(const released_layer& layer, const layer_arrays& from,
                                           const load_options& options,
                                           const has_tensor& contains) {
  const metadata_reader metadata(from.metadata, from.file);
  describe(layer, metadata, from.file);
  check_keys(from, metadata.asked());
  check_said(layer, options, metadata.asked(), from.file);
  const released_kind* const kind = expected_kind(layer, contains, from.file);
  const layer_settings said = settings_of(layer, from, metadata.asked());
  check_kind(said, kind, from.file);
  apply_settings(layer, said, options, from.file);
  return unsaid(layer, from, options, said, metadata);
}

// What fill_part has read, and the settings that the layer needs and nothing says.
struct filled_part {
  tensors_read read;
  std::set<std::string> unsaid;
};

inline filled_part filled(const released_layer& layer, const layer_arrays& file,
                          const load_options& options) {
  filled_part part;
  layer_arrays from = file;
  load_options of_layer = options;
  for (const auto& [key, text] : options.metadata) add_setting(from, key, text, "asked for");
  if (is_dictionary(layer) && !file.metadata.contains("kind")) {  // which fmoe's own say
    const dictionary_settings beside = read_dictionary(from, options.prefix, part.read);
    for (const std::string& key : beside.asked) of_layer.metadata.erase(key);
    part.unsaid = beside.needed;
  }
  from.arrays = with_scales(std::move(from.arrays));
  for (const auto& [name, a] : file.arrays)
    if (!from.arrays.contains(name)) part.read.insert(name);  // it was applied to another one
  parameter_reader reader(from, options);
  reader.learn(layer.parameters);
  for (const released_parameter& p : layer.parameters) reader.read(p);
  add_config(from, layer);
  part.unsaid.merge(fill_settings(layer, from, of_layer,
                                  [&](std::string_view name) { return reader.contains(name); }));
  part.read.insert(reader.has_read());
  return part;
}

FMOE_INLINE void fill_part(const released_layer& layer, const layer_arrays& from,
                           const load_options& options) {
  filled(layer, from, options);
}

FMOE_INLINE void fill(const released_layer& layer, const layer_arrays& from,
                      const load_options& options) {
  filled_part part = filled(layer, from, options);
  for (const std::string_view name : layer.unused)
    part.read.insert(options.prefix + std::string(name));
  std::vector<std::string> names;
  if (from.names) names = from.names();
  else
    for (const auto& [name, a] : from.arrays) names.push_back(name);
  std::erase_if(names, [&](const std::string& name) {
    return !is_of_layer(layer.parameters, options.prefix, name);
  });
  part.read.expect_all(names, options.extra, from.file);
  if (!part.unsaid.empty()) throw unsaid_setting(*part.unsaid.begin(), from.file);
}

FMOE_INLINE strings_by_name metadata_of(const released_layer& layer, const has_tensor& contains,
                                        const std::filesystem::path& file) {
  strings_by_name result;
  describe(layer, metadata_writer(result, file), file);
  if (const auto* const kind = expected_kind(layer, contains, file)) result["kind"] = kind->name;
  if (layer.active != nullptr) result["K"] = text_of_active(*layer.active);
  if (layer.activation != nullptr)
    result["activation"] = text_of_activation(*layer.activation, file);
  return result;
}

// True if the layer has a parameter of this name that holds something.
inline bool holds(const released_layer& layer, std::string_view name) {
  return std::ranges::any_of(layer.parameters, [&](const released_parameter& p) {
    return p.name.name == name && !p.parameter.value().empty();
  });
}

FMOE_INLINE void copy_settings(const released_layer& from, const released_layer& to) {
  const auto contains = [&](std::string_view name) { return holds(from, name); };
  fill_settings(to, {{}, metadata_of(from, contains, {}), {}}, {}, contains);
}

FMOE_INLINE layer_arrays arrays_of(const released_layer& layer, const std::filesystem::path& file,
                                   const save_options& options) {
  layer_arrays result{file, {}, {}};
  parameter_writer writer(result, options);
  for (const released_parameter& p : layer.parameters) writer.write(p, holds(layer, p.name.unless));
  result.metadata =
      metadata_of(layer, [&](std::string_view name) { return writer.contains(name); }, file);
  return result;
}

}  // namespace fmoe::io
