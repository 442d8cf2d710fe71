// SPDX-License-Identifier: MIT
// Weights whose scales are another array of a file. FP8 as DeepSeek-V3 has it (DeepSeek-AI 2024,
// section 3.3): NAME [o, i] of F8_E4M3, and NAME_scale_inv [ceil(o / 128), ceil(i / 128)], whose
// entries are multiplied with the weights of their blocks; or one number for the whole of each
// matrix, as transformers also has it. MXFP4 as GPT-OSS has it: NAME_blocks
// [.., o, i / 32, 16] of U8, each byte two numbers of E2M1 with the first in its low four bits, and
// NAME_scales [.., o, i / 32] of U8, which are E8M0: 2^(scale - 127).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/io/array.hpp>

namespace fmoe::io {

inline constexpr std::string_view mxfp4_ending = "_blocks";

// The name of the scales that an array of this name may have.
inline std::string name_of_block_scales(std::string_view name) {
  const bool is_mxfp4 = name.ends_with(mxfp4_ending);
  if (!is_mxfp4) return std::string(name) + "_scale_inv";
  return std::string(name.substr(0, name.size() - mxfp4_ending.size())) + "_scales";
}

// Returns [.., o, i] weights of FP8. The scales may be of any floating-point type. Throws dtype,
// and shape unless there is a scale for each matrix, or for each of its blocks of 128 x 128.
inline array fp8_weights(const array& codes, const array& scales) {
  extent rows = 128, columns = 128;
  std::vector<extent> shape = codes.shape(), of_scales = scales.shape();
  if (shape.size() >= 2) {
    const extent o = shape.end()[-2], i = shape.end()[-1];
    shape.end()[-2] = shape.end()[-1] = 1;
    if (o > 0 && i > 0 && element_count(of_scales) == element_count(shape)) {
      rows = o;
      columns = i;
      of_scales = shape;
    }
  }
  const auto scaled_by = [&](const array& floats) {
    return codes.scaled(floats.reshaped(of_scales), rows, columns);
  };
  if (scales.type() == element_type::f32) return scaled_by(scales);
  if (scales.is_outline())
    return scaled_by(array::outline(element_type::f32, scales.shape(), scales.name(), nullptr));
  return scaled_by(array(scales.elements_as(dtype::float32, scales.shape(), narrow)));
}

// Returns [.., o, i] weights of MXFP4. Throws dtype, and shape unless the scales have the shape of
// the blocks without their last axis, of 16 bytes.
inline array mxfp4_weights(const array& blocks, const array& scales) {
  constexpr extent block = 32;
  std::vector<extent> shape = scales.shape();
  shape.push_back(block / 2);
  blocks.check_shape(shape);
  shape.pop_back();
  if (!shape.empty()) shape.back() *= block;
  else shape = {block};
  if (blocks.type() != element_type::u8)
    throw error(errc::dtype, "is " + std::string(name_of(blocks.type())) + " and U8 is expected", 0,
                blocks.name());
  return blocks.reshaped(std::move(shape), element_type::f4).scaled(scales, 1, block);
}

// Returns the arrays with their scales applied: an array that has scales beside it stands for its
// weights, under its own name, and the scales are gone. Throws as fp8_weights and mxfp4_weights do.
inline arrays_by_name with_scales(arrays_by_name arrays) {
  for (auto at = arrays.begin(); at != arrays.end(); ++at) {
    array& a = at->second;
    const auto scales = arrays.find(name_of_block_scales(at->first));
    if (scales == arrays.end() || a.is_scaled()) continue;
    if (at->first.ends_with(mxfp4_ending)) a = mxfp4_weights(a, scales->second);
    else if (a.type() == element_type::f8_e4m3) a = fp8_weights(a, scales->second);
    else continue;
    arrays.erase(scales);
  }
  return arrays;
}

}  // namespace fmoe::io
