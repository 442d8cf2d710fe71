// SPDX-License-Identifier: MIT
// What a file's metadata says about the layer in it: "K" or "k" and "selection", "activation", "kind", and
// what layers describe themselves.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/functions.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

struct layer_settings {
  std::optional<extent> active;
  std::optional<pointwise> activation;
  std::optional<std::string> kind;
};

// The first spelling of each is what files are written with.
inline constexpr std::pair<std::string_view, pointwise> activation_names[] = {
    {"relu", pointwise::relu},
    {"gelu", pointwise::gelu},
    {"gelu_exact", pointwise::gelu},
    {"gelu_erf", pointwise::gelu},
    {"gelu (erf)", pointwise::gelu},
    {"gelu_tanh", pointwise::gelu_tanh},
    {"gelu (tanh)", pointwise::gelu_tanh},
    {"gelu_pytorch_tanh", pointwise::gelu_tanh},
    {"gelu_new", pointwise::gelu_tanh},
    {"silu", pointwise::silu},
    {"swish", pointwise::silu},
    {"sigmoid", pointwise::sigmoid},
    {"squared_relu", pointwise::squared_relu},
    {"relu2", pointwise::squared_relu}};

// Capitals count as small letters. Throws schema for a name that is not known.
inline pointwise activation_named(std::string_view name, const std::filesystem::path& file) {
  std::string small(name);
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const auto& [known, fn] : activation_names)
    if (known == small) return fn;
  throw error(errc::schema, "has the activation " + in_quotes(name) + " in its metadata, which is not known", 0, {},
              file);
}

// Throws schema for a function that files cannot name.
inline std::string text_of_activation(pointwise f, const std::filesystem::path& file) {
  for (const auto& [name, fn] : activation_names)
    if (fn == f) return std::string(name);
  throw error(errc::schema, std::string("cannot name the activation ") + name_of(f), 0, {}, file);
}

inline std::string text_of_active(extent k) { return k == all ? "-1" : std::to_string(k); }

inline std::string text_of_setting(extent k) { return text_of_active(k); }
inline std::string text_of_setting(pointwise f) { return name_of(f); }

// A number, -1 for `all`. Throws schema for anything else.
inline extent active_named(std::string_view text, const std::filesystem::path& file) {
  extent k = all;
  if (text == "-1") return k;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), k);
  if (fault != std::errc() || end != text.data() + text.size() || k == all)
    throw error(errc::schema,
                "has K = " + in_quotes(text) + " in its metadata, which is no number of experts and not -1", 0, {},
                file);
  return k;
}

// What both say, if one says something. Throws conflict if they differ.
template <class Setting>
std::optional<Setting> agreed(std::optional<Setting> wanted, std::optional<Setting> found, const char* what,
                              const std::filesystem::path& file, const char* wanted_where = "asked for") {
  if (wanted && found && *wanted != *found)
    throw error(errc::conflict,
                std::string("has ") + what + " = " + text_of_setting(*found) + " in its metadata, and " +
                    text_of_setting(*wanted) + " is " + wanted_where,
                0, {}, file);
  return wanted ? wanted : found;
}

// Throws schema for what cannot be understood and conflict for contradictions.
inline layer_settings settings_in(const std::map<std::string, std::string>& metadata,
                                  const std::filesystem::path& file) {
  const auto text = [&](const char* key) {
    const auto at = metadata.find(key);
    return at == metadata.end() ? std::nullopt : std::optional(at->second);
  };
  layer_settings said;
  said.kind = text("kind");
  if (const auto name = text("activation")) said.activation = activation_named(*name, file);
  for (const char* key : {"K", "k"})
    if (const auto k = text(key)) said.active = agreed<extent>(said.active, active_named(*k, file), "k", file, "its K");
  if (const auto selection = text("selection")) {
    const bool selects = *selection == "topk";
    if (!selects && *selection != "relu" && *selection != "none")
      throw error(errc::schema, "has the selection " + in_quotes(*selection) + " in its metadata, which is not known",
                  0, {}, file);
    if (said.active && selects == (*said.active == all))
      throw error(errc::conflict,
                  "has the selection " + in_quotes(*selection) + " and K = " + text_of_active(*said.active) +
                      " in its metadata",
                  0, {}, file);
    if (!selects) said.active = all;
  }
  return said;
}

// Spellings of a setting's values; the first one of each is what files are written with.
template <class Value>
using spellings = std::initializer_list<std::pair<std::string_view, Value>>;

// What a layer's describe(layer, file) is given when it is loaded.
class metadata_reader {
 public:
  metadata_reader(const std::map<std::string, std::string>& metadata, const std::filesystem::path& file)
      : metadata_(metadata), file_(file) {}

  // What the tensors do not tell: `value` stays as it is if the metadata has no such key. Throws schema for a text that is
  // none of the names.
  template <class Value>
  void setting(const char* key, Value& value, spellings<std::type_identity_t<Value>> names) const {
    const auto said = metadata_.find(key);
    if (said == metadata_.end()) return;
    const auto known = std::ranges::find(names, std::string_view(said->second), [](const auto& n) { return n.first; });
    if (known == names.end())
      throw error(errc::schema, std::string("has the ") + key + ' ' + in_quotes(said->second) + " in its metadata, which is not known",
                  0, {}, file_);
    value = known->second;
  }

  // The same for a number. Throws schema for a text that is none.
  template <class Number>
  void number(const char* key, Number& value) const {
    const auto said = metadata_.find(key);
    if (said == metadata_.end()) return;
    const std::string& text = said->second;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (fault != std::errc() || end != text.data() + text.size())
      throw error(errc::schema, std::string("has ") + key + " = " + in_quotes(text) + " in its metadata, which is no such number", 0, {},
                  file_);
  }

  // What the tensors tell. Throws conflict if the metadata says something else.
  void fact(const char* key, const std::string& found) const {
    const auto said = metadata_.find(key);
    if (said != metadata_.end() && said->second != found)
      throw error(errc::conflict,
                  std::string("has ") + key + " = " + in_quotes(said->second) + " in its metadata, and its tensors make " +
                      in_quotes(found),
                  0, {}, file_);
  }

 private:
  const std::map<std::string, std::string>& metadata_;
  const std::filesystem::path& file_;
};

// The same when it is saved.
class metadata_writer {
 public:
  metadata_writer(std::map<std::string, std::string>& metadata, const std::filesystem::path& file)
      : metadata_(metadata), file_(file) {}

  // Throws schema for a value without a name.
  template <class Value>
  void setting(const char* key, const Value& value, spellings<Value> names) const {
    const auto known = std::ranges::find(names, value, [](const auto& n) { return n.second; });
    if (known == names.end()) throw error(errc::schema, std::string("cannot name the layer's ") + key, 0, {}, file_);
    metadata_[key] = known->first;
  }
  template <class Number>
  void number(const char* key, const Number& value) const {
    std::array<char, 32> text{};
    metadata_[key] = std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }
  void fact(const char* key, const std::string& found) const { metadata_[key] = found; }

 private:
  std::map<std::string, std::string>& metadata_;
  const std::filesystem::path& file_;
};

// Calls Layer::describe, if there is one; what the layer finds wrong with itself becomes an io::error.
template <class Layer, class File>
void describe(Layer& layer, const File& metadata, const std::filesystem::path& file) {
  if constexpr (requires { Layer::describe(layer, metadata); }) {
    try {
      Layer::describe(layer, metadata);
    } catch (const shape_error& e) {
      throw error(errc::shape, e.what(), 0, {}, file);
    } catch (const value_error& e) {
      throw error(errc::conflict, e.what(), 0, {}, file);
    }
  }
}

}  // namespace fmoe::io
