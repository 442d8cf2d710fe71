// SPDX-License-Identifier: MIT
// A safetensors file that is open: its arrays are read when they are asked for, whole or in part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include <fmoe/io/array.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/safetensors_header.hpp>

namespace fmoe::io {

// Some neighbours along an axis of a shape.
struct axis_part {
  std::vector<extent> shape;  // of the whole array, whose axes may be joined in the file
  extent axis, first, count;
};

class opened_safetensors {
 public:
  // Reads the header. Throws as safetensors::read does.
  explicit opened_safetensors(const std::filesystem::path& file);

  const std::filesystem::path& file() const { return *file_; }
  const safetensors_header& header() const { return found_.header; }

  // The description of a tensor, or null.
  const tensor_entry* find(std::string_view name) const;

  array outline(const tensor_entry& t) const;
  array read(const tensor_entry& t);

  // Reads the bytes of the part alone. The array has this shape. Throws dtype for elements of less
  // than a byte.
  array read(const tensor_entry& t, const axis_part& part, std::vector<extent> shape);

  // The bytes that were read so far, with those of the header.
  std::uint64_t bytes_read() const { return bytes_read_; }

 private:
  void get(std::uint64_t at, std::span<std::byte> to);

  std::shared_ptr<const std::filesystem::path> file_;
  input input_;
  located_header found_;
  std::uint64_t bytes_read_;
};

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/opened_safetensors-inl.hpp>
#endif
