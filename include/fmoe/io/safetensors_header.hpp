// SPDX-License-Identifier: MIT
// The header of a safetensors file: what it says of every tensor, and the metadata.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include <fmoe/io/array.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/tensor_entry.hpp>

namespace fmoe::io {

inline constexpr std::size_t header_at = 8;             // after the length of the header
inline constexpr std::uint64_t max_header = 100000000;  // bytes

struct safetensors_header {
  std::deque<tensor_entry> tensors;
  strings_by_name metadata;
};

// Checks the text of a header. Throws io::error, unless the tensors can be as it describes them:
// their names are unique, and they cover the data without gaps and overlaps.
safetensors_header judge_header(std::string_view text, const subject& in);

struct located_header {
  safetensors_header header;
  std::uint64_t data_at;  // byte of the file where the data begin
};

// Reads the header of a file. Throws as judge_header does.
located_header read_safetensors_header(const input& in);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/safetensors_header-inl.hpp>
#endif
