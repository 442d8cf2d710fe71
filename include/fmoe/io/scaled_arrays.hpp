// SPDX-License-Identifier: MIT
// Weights that stand in several arrays of a file, of which one holds codes and others their scales.
// A weight NAME is [.., o, i], and w is the number of a code in its format. There are these forms:
//
// FP8, or integers of 8 bits: NAME of F8_E4M3 or I8, and NAME_scale_inv (DeepSeek-AI 2024, section
// 3.3, and transformers) or NAME_scale (compressed-tensors): w times the scale of its block, which
// is the whole matrix, a row, or on each axis 128 weights or another power of two without a rest.
// With NAME_zero_point of I8 it is w less the code of 0.
//
// FP4: NAME_packed or NAME of U8 [.., o, i / 2], each byte two numbers of E2M1 with the first in
// its low four bits, and NAME_scale [.., o, i / 16] of F8_E4M3 (NVFP4), or [.., o, i / 32] of U8 or
// F8_E8M0, 2^(scale - 127) (MXFP4). NVFP4 has a second scale of the matrix: NAME_scale_2, which
// multiplies (NVIDIA's ModelOpt), or NAME_global_scale, which divides (compressed-tensors).
//
// Integers of 4 bits (compressed-tensors): NAME_packed of I32 [.., o, i / 8], eight a word from its
// low bits on, NAME_scale [.., o, groups], and NAME_shape, o and i: w - 8 times the scale, or with
// NAME_zero_point of I32 [.., o / 8, groups] w less the code of 0.
//
// MXFP4 as GPT-OSS has it: NAME is X_blocks of U8 [.., o, i / 32, 16], and X_scales of U8.
//
// In GGUF: X.weight in blocks of ggml, and X.scale with a number for each matrix.
//
// X.input_scale and X.input_global_scale beside X.weight are of activations, which fmoe computes in
// floats. They are passed over.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>

namespace fmoe::io {

inline constexpr std::string_view mxfp4_ending = "_blocks";

// Returns the names of all arrays that may make the weight of this name, which is the first.
std::vector<std::string> parts_of_weight(const std::string& name);

// True if an array of the name `part` may be one that makes the weight of this name.
bool is_part_of_weight(const std::string& name, std::string_view part);

// Returns the array of a name, if there is one.
using find_array = std::function<std::optional<array>(const std::string& name)>;

// Returns [.., o, i] weights of FP8 or of integers of 8 bits. Throws dtype, and shape unless the
// scales are one for each matrix, for each row, for each block of 128 x 128, or for blocks of other
// powers of two without a rest.
array fp8_weights(const array& codes, const array& scales);

// Returns [.., o, i] weights of MXFP4. Throws dtype, and shape unless the scales have the shape of
// the blocks without their last axis, of 16 bytes.
array mxfp4_weights(const array& blocks, const array& scales);

// Returns the weight of this name as what `find` has makes it, or an array of this name alone as it
// is, or nothing. `find` is asked for nothing but what makes the weight, and for what is passed
// over. Throws dtype, shape and missing_tensor if the arrays do not belong together, and
// extra_tensor for NAME_g_idx, which orders columns in groups.
std::optional<array> weight_of(const std::string& name, const find_array& find);

// Returns the arrays with their scales applied: an array that has scales beside it stands for its
// weights, under the weight's own name, and what else makes it is gone. Throws as weight_of does.
arrays_by_name with_scales(arrays_by_name arrays);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/scaled_arrays-inl.hpp>
#endif
