// SPDX-License-Identifier: MIT
// The size of a safetensors file's header.
#pragma once

#include <cstdint>
#include <cstring>

#include "files.hpp"

namespace fmoe::test {

// The bytes of a file before its data.
inline std::size_t header_of(const std::filesystem::path& file) {
  const std::string bytes = content(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return 8 + length;
}

}  // namespace fmoe::test
