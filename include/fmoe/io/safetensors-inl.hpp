// SPDX-License-Identifier: MIT
// Reading and writing of whole safetensors files.
#pragma once

#include <memory>
#include <system_error>
#include <utility>

#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/gguf-inl.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>
#include <fmoe/io/safetensors_layout.hpp>
#include <fmoe/io/shard.hpp>

namespace fmoe::io {

FMOE_INLINE safetensors safetensors::read(const std::filesystem::path& file) {
  return safetensors(input(file));
}

FMOE_INLINE safetensors safetensors::parse(std::span<const std::byte> bytes,
                                           const std::filesystem::path& file) {
  return safetensors(input(bytes, file));
}

FMOE_INLINE void safetensors::write(const std::filesystem::path& file, const arrays_by_name& arrays,
                                    const strings_by_name& metadata) {
  const safetensors_layout layout(arrays, metadata, file);
  write_file(file, layout.pieces());
}

FMOE_INLINE void write_layer(const layer_arrays& from, const std::filesystem::path& file,
                             file_form form) {
  if (form == file_form::fmoe) return safetensors::write(file, from.arrays, from.metadata);
  const saelens_files files = saelens_files_of(from);
  std::error_code fault;  // which the first file tells
  std::filesystem::create_directories(file, fault);
  safetensors::write(file / "sae_weights.safetensors", files.tensors);
  const std::span<const std::byte> config = std::as_bytes(std::span(files.config));
  write_file(file / "cfg.json", std::span(&config, 1));
}

FMOE_INLINE std::vector<std::byte> safetensors::serialize(const arrays_by_name& arrays,
                                                          const strings_by_name& metadata) {
  const safetensors_layout layout(arrays, metadata, {});
  std::vector<std::byte> result;
  for (const auto piece : layout.pieces()) result.insert(result.end(), piece.begin(), piece.end());
  return result;
}

FMOE_INLINE safetensors::safetensors(const input& in) : named_arrays(in.file) {
  located_header found = read_safetensors_header(in);
  const auto data = std::make_shared<const memory>(in.size - found.data_at);
  in.read(found.data_at, {data->data(), data->size()});
  std::vector<array> arrays;
  arrays.reserve(found.header.tensors.size());
  for (const tensor_entry& t : found.header.tensors) {
    const std::span<const std::byte> bytes(data->data() + t.range[0], t.range[1] - t.range[0]);
    arrays.emplace_back(t.type, t.shape, bytes, data, t.name, shared_file());
  }
  hold(std::move(arrays));
  metadata_ = std::move(found.header.metadata);
}

// `File` is safetensors or gguf.
template <class File>
layer_arrays all_in(const File& weights) {
  layer_arrays result{weights.file(), weights.metadata(), {}};
  for (const array& a : weights.arrays()) result.arrays.emplace(a.name(), a);
  return result;
}

FMOE_INLINE layer_arrays arrays_in(const safetensors& weights) { return all_in(weights); }

FMOE_INLINE layer_arrays arrays_in(const std::filesystem::path& file) {
  if (!transcoder_shard::ending_of(file).empty()) {
    const transcoder_shard both(file);
    layer_arrays result{file, both.metadata(), {}};
    for (const std::string& name : both.names()) result.arrays.emplace(name, both.read(name));
    return result;
  }
  return is_gguf(input(file)) ? all_in(gguf::read(file)) : all_in(safetensors::read(file));
}

}  // namespace fmoe::io
