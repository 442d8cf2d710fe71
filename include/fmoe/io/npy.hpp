// SPDX-License-Identifier: MIT
// Reads and writes .npy files of numpy: one array after a header. Arrays become row-major and
// little-endian, whatever the order in the file. Nothing is ever unpickled.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>

namespace fmoe::io::npy {

// Throws io::error.
array read(const std::filesystem::path& file);

// Copies the bytes; `file` is used only in messages.
array parse(std::span<const std::byte> bytes, const std::filesystem::path& file = {});

// If this fails, an old file stays unchanged. Links and killed programs are as for fmoe::save.
void write(const std::filesystem::path& file, const array& a);

std::vector<std::byte> serialize(const array& a);

}  // namespace fmoe::io::npy

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/npy-inl.hpp>
#endif
