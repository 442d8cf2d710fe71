// SPDX-License-Identifier: MIT
// The cfg.json that SAELens writes beside the tensors of an autoencoder or a transcoder. It decides
// which of the two they make: both have the names of fmoe's `sae`.
#pragma once

#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/released_layer.hpp>
#include <fmoe/io/tensors_read.hpp>

namespace fmoe::io {

struct layer_arrays;

inline constexpr std::string_view saelens_skip = "W_skip";  // [output, input]

// True for a layer that SAELens has, too.
bool has_names_of_saelens(const released_layer& layer);

// Gives the tensors behind the prefix the names of the layer that the cfg.json beside the file
// describes, and adds K and the activation to the metadata; does nothing without a cfg.json of
// SAELens. Tensors under other names than before are `read`. Throws schema for what fmoe does not
// compute, and conflict if the metadata say otherwise.
void read_saelens(layer_arrays& from, std::string_view prefix, tensors_read& read);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/saelens-inl.hpp>
#endif
