// SPDX-License-Identifier: MIT
// Reading of parts of safetensors files.
#pragma once

#include <algorithm>
#include <utility>

#include <fmoe/io/opened_safetensors.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>

namespace fmoe::io {

FMOE_INLINE opened_safetensors::opened_safetensors(const std::filesystem::path& file)
    : file_(std::make_shared<const std::filesystem::path>(file)),
      input_(file),
      found_(read_safetensors_header(input_)),
      bytes_read_(found_.data_at) {}

FMOE_INLINE const tensor_entry* opened_safetensors::find(std::string_view name) const {
  for (const tensor_entry& t : found_.header.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

FMOE_INLINE array opened_safetensors::outline(const tensor_entry& t) const {
  return array::outline(t.type, t.shape, t.name, file_);
}

FMOE_INLINE void opened_safetensors::get(std::uint64_t at, std::span<std::byte> to) {
  input_.read(found_.data_at + at, to);
  bytes_read_ += to.size();
}

FMOE_INLINE array opened_safetensors::read(const tensor_entry& t) {
  const auto data = std::make_shared<const memory>(t.range[1] - t.range[0]);
  const std::span<std::byte> bytes(data->data(), data->size());
  get(t.range[0], bytes);
  return array(t.type, t.shape, bytes, data, t.name, file_);
}

FMOE_INLINE array opened_safetensors::read(const tensor_entry& t, const axis_part& part,
                                           std::vector<extent> shape) {
  const extent bits = bits_of(t.type);
  if (bits % 8 != 0)
    throw error(errc::dtype, "is " + std::string(name_of(t.type)) + ", which is read whole alone",
                0, t.name, *file_);
  const std::span<const extent> whole = part.shape;
  const extent inner = element_count(whole.subspan(part.axis + 1), bits / 8) * (bits / 8),
               outer = element_count(whole.first(part.axis)), run = part.count * inner;
  const auto data = std::make_shared<const memory>(outer * run);
  for (extent o = 0; o < outer; ++o)
    get(t.range[0] + (o * whole[part.axis] + part.first) * inner, {data->data() + o * run, run});
  return array(t.type, std::move(shape), {data->data(), data->size()}, data, t.name, file_);
}

}  // namespace fmoe::io
