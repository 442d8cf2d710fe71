// SPDX-License-Identifier: MIT
// A golden case consists of the files <name>.io, <name>.weights (or the file that the metadata
// names), <name>.experts and <name>.grad.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include <fmoe/base/number_text.hpp>
#include <fmoe/io/safetensors.hpp>

namespace fmoe::golden {

using namespace detail;

inline constexpr std::string_view extension = ".safetensors";

// The case needs something that this program cannot judge.
struct not_understood : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class golden_case {
 public:
  // `stem` is the path of the case without ".io.safetensors".
  explicit golden_case(const std::string& stem)
      : io_(io::safetensors::read(path_of(stem, "io"))),
        metadata_(io_.metadata()),
        weights_(path_of(stem, "weights")),
        gradients_(path_of(stem, "grad")) {
    if (const auto named = text("weights_file")) weights_.replace_filename(*named);
    for (const std::string& tensor : io_.names()) unread_.insert(tensor);
    if (const auto file = path_of(stem, "experts"); std::filesystem::exists(file))
      experts_ = io::safetensors::read(file);
    if (experts_)
      for (const std::string& tensor : experts_->names()) unread_.insert(tensor);
  }

  const io::strings_by_name& metadata() const { return metadata_; }
  const std::filesystem::path& file() const { return io_.file(); }
  const std::filesystem::path& weights() const { return weights_; }
  // The file of the gradients, if there is one.
  std::optional<std::filesystem::path> gradients() const {
    return std::filesystem::exists(gradients_) ? std::optional(gradients_) : std::nullopt;
  }

  std::optional<std::string> text(const std::string& key) const {
    const auto at = metadata_.find(key);
    return at == metadata_.end() ? std::nullopt : std::optional(at->second);
  }
  std::string required(const std::string& key) const {
    if (const auto value = text(key)) return *value;
    throw not_understood("the metadata has no " + key);
  }
  template <class Number>
  Number number(const std::string& key) const {
    const std::string value = required(key);
    Number n{};
    if (!is_number(value, n)) throw not_understood("the metadata has " + key + " = " + value);
    return n;
  }

  bool has(std::string_view tensor) const { return find(tensor) != nullptr; }

  // Returns [..., columns] as rows; leading axes count rows.
  template <class T>
  fmoe::tensor<T, 2> rows(const std::string& tensor) {
    return rows<T>(read(tensor));
  }
  template <class T>
  static fmoe::tensor<T, 2> rows(const io::array& a) {
    extent count = 1;
    for (extent i = 0; i + 1 < a.shape().size(); ++i) count *= a.shape()[i];
    const extent columns = a.shape().empty() ? 1 : a.shape().back();
    return io::array(a.type(), {count, columns}, a.bytes()).template get<T, 2>(io::narrow);
  }
  std::vector<std::int64_t> integers(const std::string& tensor) {
    return read(tensor).integers<std::int64_t>();
  }

  void ignore(std::string_view tensor) { unread_.erase(std::string(tensor)); }
  // Returns the names that nobody has asked for yet.
  const std::set<std::string>& unread() const { return unread_; }

 private:
  static std::filesystem::path path_of(const std::string& stem, std::string_view part) {
    return stem + '.' + std::string(part) + std::string(extension);
  }

  const io::array* find(std::string_view tensor) const {
    const io::array* found = io_.find(tensor);
    return found == nullptr && experts_ ? experts_->find(tensor) : found;
  }
  io::array read(const std::string& tensor) {
    ignore(tensor);
    if (const io::array* found = find(tensor)) return *found;
    throw not_understood("there is no " + tensor);
  }

  io::safetensors io_;
  io::strings_by_name metadata_;
  std::filesystem::path weights_, gradients_;
  std::optional<io::safetensors> experts_;
  std::set<std::string> unread_;
};

using named_sizes = std::vector<std::pair<std::string, extent>>;

// Checks that the sizes in the metadata are those of the files.
inline void check_sizes(const golden_case& c, const named_sizes& found) {
  for (const auto& [key, length] : found)
    if (c.text(key) && c.number<extent>(key) != length)
      throw not_understood("the metadata has " + key + " = " + c.required(key) +
                           " and the files have " + std::to_string(length));
}

}  // namespace fmoe::golden
