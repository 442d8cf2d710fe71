// SPDX-License-Identifier: MIT
// Published dictionaries: sparse autoencoders and transcoders under the names and with the settings
// of the library that has trained them. What lies beside the file tells which library that is.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/released_layer.hpp>
#include <fmoe/io/tensors_read.hpp>

namespace fmoe::io {

struct layer_arrays;

// A name in files of dictionaries that their layer has not, and the required name that it stands
// for.
struct dictionary_name {
  std::string_view name, of = {};
};

// Of all libraries b_dec, which may be one of two biases, and what gated units have; of Gemma Scope
// 2 and of torch's Linear in eai-sparsify and dictionary_learning; of SAELens a skip [output,
// input] and one threshold for all units []; biases, K and groups of dictionary_learning; and the
// thresholds of circuit-tracer.
inline constexpr dictionary_name dictionary_names[] = {
    {"w_enc", "W_enc"},
    {"w_dec", "W_dec"},
    {"encoder.weight", "W_enc"},
    {"decoder.weight", "W_dec"},
    {"b_dec"},
    {"b_gate"},
    {"r_mag"},
    {"b_mag"},
    {"W_skip"},
    {"affine_skip_connection"},
    {"topk_threshold"},
    {"activation_function.threshold"},
    {"encoder.bias"},
    {"decoder.bias"},
    {"bias"},
    {"decoder_bias"},
    {"gate_bias"},
    {"mag_bias"},
    {"k"},
    {"group_sizes"},
};

// True for a layer that is a dictionary.
bool is_dictionary(const released_layer& layer);

// Who has written the tensors behind the prefix. `none`: names of SAELens without its cfg.json,
// which others have as well.
enum class dictionary_library : std::uint8_t {
  none,
  saelens,
  sparsify,
  dictionary_learning,
  circuit_tracer,
  gemma_scope_2
};
dictionary_library library_of(const layer_arrays& from, std::string_view prefix);

// The settings that read_dictionary asks the metadata for and a layer does not.
struct dictionary_settings {
  std::set<std::string> asked, needed;  // needed: nothing says them
};

// Gives the tensors behind the prefix the names of fmoe's layer, and adds its settings to the
// metadata, as their library means them. Tensors under other names than before are `read`. Throws
// schema for what fmoe does not compute, extra_tensor and missing_tensor for tensors that are not
// those of SAELens' architecture, and conflict if the metadata say otherwise.
dictionary_settings read_dictionary(layer_arrays& from, std::string_view prefix,
                                    tensors_read& read);

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
#include <fmoe/io/dictionary-inl.hpp>
#endif
