// SPDX-License-Identifier: MIT
// Writes GGUF files for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmoe/io/little_endian.hpp>

namespace fmoe::test {

template <class T>
std::string little(T value) {
  std::string text(sizeof(T), '\0');
  io::store_little(value, reinterpret_cast<std::byte*>(text.data()));
  return text;
}

inline std::string counted_text(const std::string& text) {
  return little<std::uint64_t>(text.size()) + text;
}

// The numbers of kinds of values, and of types of tensors.
enum : std::uint32_t { gguf_u8 = 0, gguf_u32 = 4, gguf_f32 = 6, gguf_bool = 7, gguf_text = 8 };
enum : std::uint32_t { gguf_array = 9, gguf_u64 = 10 };
enum : std::uint32_t { ggml_f32 = 0, ggml_q4_0 = 2, ggml_q4_1 = 3, ggml_q5_0 = 6, ggml_q8_0 = 8 };
enum : std::uint32_t { ggml_q4_k = 12, ggml_iq4_nl = 20, ggml_mxfp4 = 39 };

struct gguf_file {
  std::uint32_t version = 3;
  std::uint64_t value_count = 0, tensor_count = 0;
  std::string values, tensors, data;

  // Adds a value whose bytes are `content`.
  gguf_file& value(const std::string& key, std::uint32_t kind, const std::string& content) {
    values += counted_text(key) + little(kind) + content;
    ++value_count;
    return *this;
  }
  gguf_file& value(const std::string& key, std::uint32_t number) {
    return value(key, gguf_u32, little(number));
  }

  // Adds the description of a tensor, whose dimensions are innermost first.
  gguf_file& entry(const std::string& name, const std::vector<std::uint64_t>& dimensions,
                   std::uint32_t type, std::uint64_t offset) {
    tensors += counted_text(name) + little(static_cast<std::uint32_t>(dimensions.size()));
    for (const std::uint64_t n : dimensions) tensors += little(n);
    tensors += little(type) + little(offset);
    ++tensor_count;
    return *this;
  }
  // Adds a tensor behind the others.
  gguf_file& tensor(const std::string& name, const std::vector<std::uint64_t>& dimensions,
                    std::uint32_t type, const std::string& content) {
    data.resize((data.size() + 31) / 32 * 32);
    entry(name, dimensions, type, data.size());
    data += content;
    return *this;
  }
  gguf_file& floats(const std::string& name, const std::vector<std::uint64_t>& dimensions,
                    std::span<const float> numbers) {
    std::string content;
    for (const float x : numbers) content += little(x);
    return tensor(name, dimensions, ggml_f32, content);
  }

  std::string header() const {
    return "GGUF" + little(version) + little(tensor_count) + little(value_count) + values + tensors;
  }
  std::string bytes() const {
    std::string text = header();
    if (!data.empty()) text.resize((text.size() + 31) / 32 * 32);
    return text + data;
  }
};

}  // namespace fmoe::test
