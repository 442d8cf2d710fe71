// SPDX-License-Identifier: MIT
// Weights of 8 bits in a file: the integers are an array of I8 under the name of the tensor, and
// the scales another one, named NAME.scale, of F16 for q8 and F32 for q8c. Weight i along the axis
// on which the two shapes differ is integer i times scale i / 32, or times the only scale of the
// axis. An axis of two labels, "d(nl)", is split in the shape of the scales. In GGUF files Q8_0 is
// the same as q8, with scale and integers of a block side by side.
#pragma once

#include <algorithm>
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

// Returns ggml's Q8_0 as q8 along the last axis, with the same integers and scales, of this shape.
// Returns nothing for rows that are not whole blocks, and for an integer of -128, which q8 has not.
inline std::optional<any_tensor> quantized_from(const array& q8_0,
                                                const std::vector<extent>& shape) {
  constexpr extent block = q8::block, scale_bytes = sizeof(q8::scale);
  if (shape.empty() || shape.back() % block != 0) return {};
  any_tensor t{dtype::q8, shape, nullptr, axis_of(shape, shape.size() - 1)};
  const quantized_layout layout(t.type, element_count(shape), t.axis);
  const bool has_elements = layout.size != 0 && !q8_0.is_outline();
  t.elements = std::make_shared<storage>(has_elements ? layout.bytes() : 0);
  if (!has_elements) return t;
  auto* const to = static_cast<std::byte*>(t.elements->data());
  const std::byte* from = q8_0.bytes().data();
  for (extent i = 0; i < layout.scales(); ++i, from += scale_bytes + block) {
    const std::span integers(from + scale_bytes, block);
    if (std::ranges::count(integers, std::byte{0x80}) != 0) return {};
    copy_little({from, scale_bytes}, scale_bytes, to + layout.first_scale() + i * scale_bytes);
    std::ranges::copy(integers, to + i * block);
  }
  return t;
}

}  // namespace fmoe::io
