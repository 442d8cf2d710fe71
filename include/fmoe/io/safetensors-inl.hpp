// SPDX-License-Identifier: MIT
// Reading and writing of whole safetensors files.
#pragma once

#include <algorithm>
#include <memory>

#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>
#include <fmoe/io/safetensors_layout.hpp>

namespace fmoe::io {

FMOE_INLINE safetensors safetensors::read(const std::filesystem::path& file) {
  return safetensors(input(file));
}

FMOE_INLINE safetensors safetensors::parse(std::span<const std::byte> bytes,
                                           const std::filesystem::path& file) {
  return safetensors(input(bytes, file));
}

FMOE_INLINE std::vector<std::string> safetensors::names() const {
  std::vector<std::string> result;
  for (const auto& a : arrays_) result.push_back(a.name());
  return result;
}

FMOE_INLINE const array* safetensors::find(std::string_view name) const& {
  const auto at = std::lower_bound(arrays_.begin(), arrays_.end(), name,
                                   [](const array& a, std::string_view n) { return a.name() < n; });
  return at != arrays_.end() && at->name() == name ? &*at : nullptr;
}

FMOE_INLINE array safetensors::at(std::string_view name) const {
  if (const array* found = find(name)) return *found;
  throw error(errc::missing_tensor, "is missing", 0, std::string(name), *file_);
}

FMOE_INLINE void safetensors::write(const std::filesystem::path& file, const arrays_by_name& arrays,
                                    const strings_by_name& metadata) {
  const safetensors_layout layout(arrays, metadata, file);
  write_file(file, layout.pieces());
}

FMOE_INLINE std::vector<std::byte> safetensors::serialize(const arrays_by_name& arrays,
                                                          const strings_by_name& metadata) {
  const safetensors_layout layout(arrays, metadata, {});
  std::vector<std::byte> result;
  for (const auto piece : layout.pieces()) result.insert(result.end(), piece.begin(), piece.end());
  return result;
}

FMOE_INLINE safetensors::safetensors(const input& in)
    : file_(std::make_shared<const std::filesystem::path>(in.file)) {
  located_header found = read_safetensors_header(in);
  const auto data = std::make_shared<const memory>(in.size - found.data_at);
  in.read(found.data_at, {data->data(), data->size()});
  arrays_.reserve(found.header.tensors.size());
  for (const tensor_entry& t : found.header.tensors) {
    const std::span<const std::byte> bytes(data->data() + t.range[0], t.range[1] - t.range[0]);
    arrays_.emplace_back(t.type, t.shape, bytes, data, t.name, file_);
  }
  std::sort(arrays_.begin(), arrays_.end(),
            [](const array& a, const array& b) { return a.name() < b.name(); });
  metadata_ = std::move(found.header.metadata);
}

FMOE_INLINE layer_arrays arrays_in(const safetensors& weights) {
  layer_arrays result{weights.file(), weights.metadata(), {}};
  for (const array& a : weights.arrays()) result.arrays.emplace(a.name(), a);
  return result;
}

}  // namespace fmoe::io
