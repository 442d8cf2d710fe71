// SPDX-License-Identifier: MIT
// Reads GGUF files, versions 2 and 3, little-endian: typed metadata and named arrays, whose
// elements may be blocks of ggml. An accepted file is consistent: its names are unique, and its
// arrays lie in the file and do not overlap.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/gguf_value.hpp>
#include <fmoe/io/named_arrays.hpp>

namespace fmoe::io {

class input;

// The arrays and the metadata of one file. A shape is row-major, the reverse of the order that the
// file has: ggml's [in, out, experts] is [experts, out, in].
class gguf : public named_arrays {
 public:
  // Maps the file: bytes are read when they are first used. It must not change while this object or
  // an array of it lives. Throws io::error, and reads no array before all of them are checked.
  static gguf read(const std::filesystem::path& file);

  // Copies the bytes; `file` is used only in messages.
  static gguf parse(std::span<const std::byte> bytes, const std::filesystem::path& file = {});

  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }  // of arrays in the file, in bytes

  // The metadata; valid as long as this object.
  const gguf_values& values() const& { return values_; }
  template <class Self = gguf>
  const gguf_values& values() const&& {
    static_assert(never<Self>, "io: the file is a temporary, and its metadata end with it");
    return values_;
  }

  // These return what gguf_value::get does. `value` throws schema if there is no such key.
  template <class T>
  T value(std::string_view key) const {
    const auto found = values_.find(key);
    if (found == values_.end())
      throw error(errc::schema, "has no " + in_quotes(key) + " in its metadata", 0, {}, file());
    return found->second.template get<T>();
  }
  template <class T>
  std::optional<T> find_value(std::string_view key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return {};
    return found->second.template get<T>();
  }

  // The values that are no arrays, as text.
  strings_by_name metadata() const;

 private:
  explicit gguf(const input& in);

  std::shared_ptr<const std::byte> content_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 0;
  gguf_values values_;
};

// True if the file begins as GGUF files do. Throws io if it cannot be read.
bool is_gguf(const input& in);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/gguf-inl.hpp>
#endif
