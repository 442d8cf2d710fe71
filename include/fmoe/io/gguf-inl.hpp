// SPDX-License-Identifier: MIT
// Reading of GGUF files.
#pragma once

#include <memory>
#include <utility>

#include <fmoe/io/file.hpp>
#include <fmoe/io/gguf.hpp>
#include <fmoe/io/gguf_header.hpp>

namespace fmoe::io {

FMOE_INLINE gguf gguf::read(const std::filesystem::path& file) { return gguf(input(file)); }

FMOE_INLINE gguf gguf::parse(std::span<const std::byte> bytes, const std::filesystem::path& file) {
  return gguf(input(bytes, file));
}

FMOE_INLINE gguf::gguf(const input& in) : named_arrays(in.file), content_(in.content()) {
  const std::span<const std::byte> bytes(content_.get(), in.size);
  gguf_header_reader header(bytes, in, shared_file());
  header.read();
  std::vector<array> arrays;
  arrays.reserve(header.tensors.size());
  for (tensor_entry& t : header.tensors) {
    const auto [begin, end] = t.range;
    const auto data =
        begin == end ? bytes.first(0) : bytes.subspan(header.data_at + begin, end - begin);
    arrays.emplace_back(t.type, std::move(t.shape), data, content_, std::move(t.name),
                        shared_file());
  }
  hold(std::move(arrays));
  version_ = header.version;
  alignment_ = header.alignment;
  values_ = std::move(header.values);
}

FMOE_INLINE strings_by_name gguf::metadata() const {
  strings_by_name result;
  for (const auto& [key, value] : values_)
    if (auto text = value.text()) result.emplace(key, *std::move(text));
  return result;
}

FMOE_INLINE bool is_gguf(const input& in) {
  std::array<std::byte, gguf_magic.size()> start{};
  if (in.size < start.size()) return false;
  in.read(0, start);
  return std::ranges::equal(start, std::as_bytes(std::span(gguf_magic)));
}

}  // namespace fmoe::io
