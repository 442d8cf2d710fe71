// SPDX-License-Identifier: MIT
// The metadata of layers that describe themselves. A layer has one function, describe(layer, file),
// which names its settings and facts, both when it is loaded and when it is saved.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/number_text.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

// Spellings of the values of a setting; files are written with the first one of each.
template <class Value>
using spellings = std::initializer_list<std::pair<std::string_view, Value>>;

// Returns pairs as the metadata list them: "3,1;0,2".
inline std::string text_of_pairs(const std::vector<index_pair>& pairs) {
  std::string text;
  for (const auto& [i, j] : pairs)
    text.append(text.empty() ? "" : ";").append(std::to_string(i) + ',' + std::to_string(j));
  return text;
}

// The reverse, up to the first fault of the text.
inline std::vector<index_pair> pairs_in(std::string_view text) {
  std::vector<index_pair> pairs;
  const auto number = [&](std::size_t& n) {
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), n);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return fault == std::errc();
  };
  const auto sign = [&](char c) {
    const bool is_there = text.starts_with(c);
    text.remove_prefix(is_there ? 1 : 0);
    return is_there;
  };
  if (text.empty()) return pairs;
  do pairs.emplace_back();
  while (number(pairs.back()[0]) && sign(',') && number(pairs.back()[1]) && sign(';'));
  return pairs;
}

// The argument `file` of describe(layer, file) when the layer is loaded.
class metadata_reader {
 public:
  metadata_reader(const std::map<std::string, std::string>& metadata,
                  const std::filesystem::path& file)
      : metadata_(metadata),
        file_(file) {}

  // Reads a setting that the tensors do not tell; `value` stays unchanged if the metadata has no
  // such key. A floating-point number without a name stands as it is. Throws schema for a text that
  // is none of the names.
  template <class Value>
  void setting(const char* key, Value& value, spellings<std::type_identity_t<Value>> names) const {
    const auto said = find(key);
    if (said == metadata_.end()) return;
    const auto known = std::ranges::find(names, std::string_view(said->second),
                                         [](const auto& n) { return n.first; });
    if constexpr (std::is_floating_point_v<Value>)
      if (known == names.end() && is_number(said->second, value)) return;
    if (known == names.end())
      throw error(errc::schema,
                  std::string("has the ") + key + ' ' + in_quotes(said->second) +
                      " in its metadata, which is not known",
                  0, {}, file_);
    value = known->second;
  }

  // The same for a setting that most files leave out: they are not told the value `unsaid`.
  template <class Value>
  void setting(const char* key, Value& value, spellings<std::type_identity_t<Value>> names,
               std::type_identity_t<Value> /*unsaid*/) const {
    setting(key, value, names);
  }

  // The same for a number; -1 is `all`. Throws schema for a text that is not a number.
  template <class Number>
  void number(const char* key, Number& value) const {
    const auto said = find(key);
    if (said == metadata_.end()) return;
    const std::string& text = said->second;
    if constexpr (std::is_same_v<Number, extent>)
      if (text == "-1") return void(value = all);
    if (!is_number(text, value))
      throw error(errc::schema,
                  std::string("has ") + key + " = " + in_quotes(text) +
                      " in its metadata, which is no such number",
                  0, {}, file_);
  }

  // The same for a number that other things may tell: files are not told the value `unsaid`.
  template <class Number>
  void number(const char* key, Number& value, std::type_identity_t<Number> /*unsaid*/) const {
    number(key, value);
  }

  // The same for pairs of numbers.
  void pairs(const char* key, std::vector<index_pair>& value) const {
    const auto said = find(key);
    if (said == metadata_.end()) return;
    value = pairs_in(said->second);
    if (text_of_pairs(value) != said->second)
      throw error(errc::schema,
                  std::string("has ") + key + " = " + in_quotes(said->second) +
                      " in its metadata, which are no pairs of numbers such as 3,1;0,2",
                  0, {}, file_);
  }

  // Checks a fact that the tensors tell. Throws conflict if the metadata contradicts it.
  void fact(const char* key, std::string_view found) const {
    const auto said = find(key);
    if (said != metadata_.end() && said->second != found)
      throw error(errc::conflict,
                  std::string("has ") + key + " = " + in_quotes(said->second) +
                      " in its metadata, and its tensors make " + in_quotes(found),
                  0, {}, file_);
  }

  // Says that the layer cannot do without a setting: load throws missing_setting if nothing tells
  // it.
  void needed(const char* key) const { needed_.insert(key); }

  // The keys that the layer has asked for, and those that it needs.
  const std::set<std::string>& asked() const { return asked_; }
  const std::set<std::string>& needs() const { return needed_; }

 private:
  std::map<std::string, std::string>::const_iterator find(const char* key) const {
    asked_.insert(key);
    return metadata_.find(key);
  }

  const std::map<std::string, std::string>& metadata_;
  const std::filesystem::path& file_;
  mutable std::set<std::string> asked_, needed_;
};

// The argument `file` of describe(layer, file) when the layer is saved.
class metadata_writer {
 public:
  metadata_writer(std::map<std::string, std::string>& metadata, const std::filesystem::path& file)
      : metadata_(metadata),
        file_(file) {}

  // Throws schema for a value without a name that is no number.
  template <class Value>
  void setting(const char* key, const Value& value, spellings<Value> names) const {
    const auto known = std::ranges::find(names, value, [](const auto& n) { return n.second; });
    if constexpr (std::is_floating_point_v<Value>)
      if (known == names.end()) return number(key, value);
    if (known == names.end())
      throw error(errc::schema, std::string("cannot name the layer's ") + key, 0, {}, file_);
    metadata_[key] = known->first;
  }
  template <class Value>
  void setting(const char* key, const Value& value, spellings<Value> names,
               std::type_identity_t<Value> unsaid) const {
    if (value != unsaid) setting(key, value, names);
  }
  template <class Number>
  void number(const char* key, const Number& value) const {
    if constexpr (std::is_same_v<Number, extent>)
      if (value == all) return void(metadata_[key] = "-1");
    std::array<char, 32> text{};
    metadata_[key] =
        std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
  }
  template <class Number>
  void number(const char* key, const Number& value, std::type_identity_t<Number> unsaid) const {
    if (value != unsaid) number(key, value);
  }
  void pairs(const char* key, const std::vector<index_pair>& value) const {
    if (!value.empty()) metadata_[key] = text_of_pairs(value);
  }
  void fact(const char* key, std::string_view found) const { metadata_[key] = found; }
  void needed(const char* /*key*/) const {}

 private:
  std::map<std::string, std::string>& metadata_;
  const std::filesystem::path& file_;
};

// A layer with metadata of its own, which it names setting by setting and fact by fact in
// describe(layer, file).
template <class Layer>
concept describes_itself =
    requires(Layer& layer, const metadata_reader& file) { Layer::describe(layer, file); };

}  // namespace fmoe::io
