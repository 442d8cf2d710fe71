// SPDX-License-Identifier: MIT
// Weights of 8 bits in a file: the integers are an array of I8 under the name of the tensor, and
// the scales another one, named NAME.scale, of F16 for q8 and F32 for q8c. Weight i along the axis
// on which the two shapes differ is integer i times scale i / 32, or times the only scale of the
// axis. An axis of two labels, "d(nl)", is split in the shape of the scales. In GGUF files Q8_0 is
// the same as q8, with scale and integers of a block side by side, and so are Q5_0, Q4_0, IQ4_NL
// and MXFP4, whose integers are stored in fewer bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/io/array.hpp>

namespace fmoe::io {

inline std::string name_of_scales(const std::string& tensor) { return tensor + ".scale"; }

struct quantized_arrays {
  array integers, scales;
};

inline quantized_arrays arrays_of(const any_tensor& t) {
  const quantized_layout layout(t.type, element_count(t.shape), t.axis);
  const auto* const bytes = static_cast<const std::byte*>(t.elements->data());
  const auto* const first_scale = bytes == nullptr ? nullptr : bytes + layout.first_scale();
  std::vector<extent> blocks = t.shape;
  blocks[axis_of_blocks(t)] = layout.blocks;
  const element_type of_scales = t.type == dtype::q8 ? element_type::f16 : element_type::f32;
  const array integers(element_type::i8, t.shape, {bytes, layout.size}, t.elements);
  const std::span scales(first_scale, layout.scales() * layout.scale_bytes);
  if constexpr (host_is_little_endian)
    return {integers, array(of_scales, blocks, scales, t.elements)};
  std::vector<std::byte> little(scales.size());
  copy_little(scales, layout.scale_bytes, little.data());
  return {integers, array(of_scales, blocks, little)};
}

// The reverse, for integers of this shape. Returns nothing if the scales have neither type, or are
// not those of blocks along one axis.
inline std::optional<any_tensor> quantized_from(const array& integers, const array& scales,
                                                const std::vector<extent>& shape) {
  any_tensor t{scales.type() == element_type::f16 ? dtype::q8 : dtype::q8c, shape, nullptr};
  if (t.type == dtype::q8c && scales.type() != element_type::f32) return {};
  for (extent a = 0; a < shape.size(); ++a) {
    t.axis = axis_of(shape, a);
    const quantized_layout layout(t.type, element_count(shape), t.axis);
    std::vector<extent> blocks = shape;
    blocks[a] = layout.blocks;
    if (blocks != scales.shape()) continue;
    const bool has_elements = layout.size != 0 && !integers.is_outline();
    t.elements = std::make_shared<storage>(has_elements ? layout.bytes() : 0);
    if (!has_elements) return t;
    auto* const to = static_cast<std::byte*>(t.elements->data());
    std::memcpy(to, integers.bytes().data(), layout.size);
    copy_little(scales.bytes(), layout.scale_bytes, to + layout.first_scale());
    return t;
  }
  return {};
}

// Returns blocks of 32 integers and a scale as q8 along the last axis, with the same integers and
// scales, of this shape. Returns nothing for other arrays and for rows that are not whole blocks,
// for an integer of -128, which q8 has not, and for a scale of MXFP4 that f16 has not.
inline std::optional<any_tensor> quantized_from(const array& blocks,
                                                const std::vector<extent>& shape) {
  constexpr extent block = q8::block;
  if (!blocks.has_integers_and_scales() || shape.empty() || shape.back() % block != 0) return {};
  any_tensor t{dtype::q8, shape, nullptr, axis_of(shape, shape.size() - 1)};
  const quantized_layout layout(t.type, element_count(shape), t.axis);
  const bool has_elements = layout.size != 0 && !blocks.is_outline();
  t.elements = std::make_shared<storage>(has_elements ? layout.bytes() : 0);
  if (!has_elements) return t;
  auto* const integers = static_cast<std::int8_t*>(t.elements->data());
  auto* const scales = reinterpret_cast<q8::scale*>(integers + layout.first_scale());
  for (extent i = 0; i < layout.scales(); ++i) {
    const std::span to(integers + i * block, block);
    const float scale = blocks.integers_at(i * block, to.data());
    scales[i] = f16(scale);
    const bool has_scale = static_cast<float>(scales[i]) == scale || std::isnan(scale);
    if (!has_scale || std::ranges::count(to, -128) != 0) return {};
  }
  return t;
}

}  // namespace fmoe::io
