// SPDX-License-Identifier: MIT
// What readers of dictionaries do with the arrays of a file, and the settings beside it.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/io/axes.hpp>
#include <fmoe/io/config_file.hpp>
#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/load.hpp>

namespace fmoe::io {

// The settings in a cfg.json.
class config_beside {
 public:
  explicit config_beside(std::filesystem::path file)
      : file_(std::move(file)),
        said_(read_config(file_)) {}

  bool has(const std::string& key) const { return said_.contains(key); }
  std::string text(const std::string& key, const std::string& unsaid) const {
    const auto at = said_.find(key);
    return at == said_.end() ? unsaid : at->second;
  }
  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    throw error(
        errc::schema,
        std::string("has ") + in_quotes(key) + " = " + in_quotes(text(key, "")) + ", " + why, 0, {},
        file_);
  }
  std::string where() const { return in_config(file_); }

 private:
  std::filesystem::path file_;
  strings_by_name said_;
};

// The arrays behind a prefix, which get the names of fmoe's layer. Old names are `read`.
class dictionary_arrays {
 public:
  dictionary_arrays(layer_arrays& from, std::string_view prefix, tensors_read& read)
      : from_(from),
        prefix_(prefix),
        read_(read) {}

  std::string name(std::string_view of) const { return prefix_ + std::string(of); }
  const std::filesystem::path& file() const { return from_.file; }
  bool has(std::string_view of) const { return from_.arrays.contains(name(of)); }
  const array* find(std::string_view of) const {
    const auto at = from_.arrays.find(name(of));
    return at == from_.arrays.end() ? nullptr : &at->second;
  }

  void rename(std::string_view old, std::string_view now) {
    if (const array* const a = find(old)) put(old, now, *a);
  }
  // The same for a matrix whose two axes are in the other order.
  void transpose(std::string_view old, std::string_view now) {
    const array* const a = find(old);
    const bool is_matrix = a != nullptr && a->shape().size() == 2;
    rename(old, now);
    if (is_matrix) from_.transposed.insert(name(now));
  }
  // Leaves out a tensor that says nothing.
  void drop(std::string_view old) {
    if (from_.arrays.erase(name(old)) != 0) read_.insert(name(old));
  }

  // Makes the threshold of each unit of one for all of them.
  void spread(std::string_view old) {
    const array *const one = find(old), *const encoder = find("W_enc");
    if (one == nullptr || encoder == nullptr || encoder->shape().size() != 2 ||
        !one->shape().empty() || !one->number_type())
      return;
    const extent units = encoder->shape()[from_.transposed.contains(name("W_enc")) ? 0 : 1];
    if (one->is_outline())
      return put(old, "threshold",
                 array::outline(element_type::f32, {units}, name("threshold"), nullptr));
    const auto value = static_cast<float>(one->get<double, 0>(narrow)());
    put(old, "threshold", tensor<float, 1>({units}, std::vector<float>(units, value)));
  }

  // True for a decoder [unit, layer, output].
  bool crosses_layers(std::string_view of) const {
    const array* const a = find(of);
    return a != nullptr && a->shape().size() == 3;
  }
  // Renames such a decoder without the layers before this one. Throws conflict if the units write
  // to one of these.
  void rename_from_layer(std::string_view old, std::string_view now, extent layer) {
    const array& a = *find(old);
    const std::vector<extent>& shape = a.shape();
    const auto refuse = [&](const std::string& why) {
      throw error(errc::conflict, "is " + text_of(shape) + ", and " + why, 0, name(old), file());
    };
    if (layer >= shape[1]) refuse("has no layer " + std::to_string(layer));
    if (!a.number_type() || layer == 0) return rename(old, now);
    const std::vector<extent> rest{shape[0], shape[1] - layer, shape[2]};
    if (a.is_outline()) return put(old, now, array::outline(a.type(), rest, name(now), nullptr));
    const any_tensor elements = numbers_of(a);
    any_tensor kept{elements.type, rest, {}};
    const extent size = size_of(elements.type), before = layer * shape[2] * size,
                 row = rest[1] * rest[2] * size;
    kept.elements = std::make_shared<storage>(shape[0] * row);
    const auto* from = static_cast<const std::byte*>(elements.elements->data());
    auto* to = static_cast<std::byte*>(kept.elements->data());
    for (extent h = 0; h < shape[0]; ++h, from += before + row, to += row) {
      if (std::any_of(from, from + before, [](std::byte b) { return b != std::byte{0}; }))
        refuse("its units write to layers before layer " + std::to_string(layer));
      std::copy_n(from + before, row, to);
    }
    put(old, now, array(kept).lasting());
  }
  // Makes numbers below 0 of a vector 0.
  void at_least_0(std::string_view of) {
    if (!has_negative(of)) return;
    const array& a = *find(of);
    const auto above = [&](auto numbers) {
      for (auto& v : numbers) v = std::max(v, {});
      put(of, of, array(numbers));
    };
    if (a.type() == element_type::f64) above(a.get<double, 1>(narrow));
    else above(a.get<float, 1>(narrow));
  }

  // True for a vector with a number below 0.
  bool has_negative(std::string_view of) const {
    const array* const a = find(of);
    if (a == nullptr || a->is_outline() || a->shape().size() != 1 || !a->number_type())
      return false;
    return std::ranges::any_of(a->get<double, 1>(narrow), [](double v) { return v < 0; });
  }

  // What the metadata say; nothing for a key that they do not have.
  std::string said(const std::string& key) const {
    const auto at = from_.metadata.find(key);
    return at == from_.metadata.end() ? std::string() : at->second;
  }
  void set(const std::string& key, const std::string& value, const std::string& where) {
    add_setting(from_, key, value, where);
  }
  void set_unsaid(const std::string& key, const std::string& value) {
    from_.metadata.try_emplace(key, value);
  }

 private:
  // The floating-point numbers of an array in a type that has them all, where they lie if they can
  // be read there.
  static any_tensor numbers_of(const array& a) {
    if (auto there = a.elements_in_place(*a.number_type())) return *std::move(there);
    return a.elements_as(*a.number_type(), a.shape(), narrowing::refuse);
  }

  void put(std::string_view old, std::string_view now, array a) {
    const std::string before = name(old);
    from_.arrays.erase(before);
    read_.insert(before);
    from_.arrays.insert_or_assign(name(now), std::move(a));
  }

  layer_arrays& from_;
  std::string prefix_;
  tensors_read& read_;
};

}  // namespace fmoe::io
