// SPDX-License-Identifier: MIT
// Saves a layer that is cut over ranks as one file, which each rank writes its part of.
#pragma once

#include <filesystem>

#include <fmoe/base/separate.hpp>
#include <fmoe/distributed/sharded.hpp>

namespace fmoe::detail {

// `whole` stands for the layer, with parameters that are cut as outlines.
void save_parts(const io::released_layer& whole, communicator& ranks, const axis_cut& cut,
                const std::vector<cut_parameter>& parameters, const std::filesystem::path& path,
                const save_options& options);

}  // namespace fmoe::detail

namespace fmoe {

// Writes the file that `save` of the whole layer writes. No rank holds the whole layer: each writes
// its parts, and rank 0 the rest, so all of them see the file's folder. If one fails, all throw its
// sentence, and an old file stays unchanged.
template <class Layer>
void save(const sharded<Layer>& layer, const std::filesystem::path& path,
          const save_options& options = {}) {
  Layer whole = layer.whole;
  layer.ranks->guarded([&] {
    detail::save_parts(io::released_layer(whole), *layer.ranks, layer.cut, layer.parameters, path,
                       options);
  });
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/distributed/save_shard-inl.hpp>
#endif
