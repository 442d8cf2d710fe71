// SPDX-License-Identifier: MIT
// Reads model.safetensors.index.json: the index says which file beside it holds which tensor.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <fmoe/base/separate.hpp>

namespace fmoe::io {

using shard_names = std::map<std::string, std::string, std::less<>>;  // by tensor

// Throws io::error.
shard_names read_shard_index(const std::filesystem::path& file);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/shard_index-inl.hpp>
#endif
