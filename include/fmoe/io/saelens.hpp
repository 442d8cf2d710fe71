// SPDX-License-Identifier: MIT
// The cfg.json that SAELens writes beside the tensors of an autoencoder or a transcoder. It decides
// what they make: both have the names of fmoe's `sae`.
#pragma once

#include <string>
#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/released_layer.hpp>
#include <fmoe/io/tensors_read.hpp>

namespace fmoe::io {

struct layer_arrays;

// The names of SAELens that no layer has: the skip [output, input], and the threshold of all units
// [] of an autoencoder whose training goes on.
inline constexpr std::string_view saelens_names[] = {"W_skip", "topk_threshold"};

// True for a layer that SAELens has, too.
bool has_names_of_saelens(const released_layer& layer);

// Gives the tensors behind the prefix the names of the layer that the cfg.json beside the file
// describes, and adds its settings to the metadata. Without a cfg.json of SAELens it looks only
// at thresholds, and at whether the metadata say that b_dec is subtracted from x.
// Tensors under other names than before are `read`. Throws schema for what fmoe does not compute,
// extra_tensor and missing_tensor for tensors that are not those of the architecture, and conflict
// if the metadata say otherwise.
void read_saelens(layer_arrays& from, std::string_view prefix, tensors_read& read);

// The tensors and the cfg.json of SAELens 6.
struct saelens_files {
  arrays_by_name tensors;
  std::string config;
};

// The reverse, for the arrays of a layer. Throws conflict for one that no architecture of SAELens
// computes.
saelens_files saelens_files_of(const layer_arrays& from);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/saelens-inl.hpp>
#endif
