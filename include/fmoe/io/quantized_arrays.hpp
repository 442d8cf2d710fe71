// SPDX-License-Identifier: MIT
// Weights of 8 bits in a file: the integers are an array of I8 under the name of the tensor, and
// the scales another one, named NAME.scale, of F16 for q8 and F32 for q8c. Weight i along the axis
// on which the two shapes differ is integer i times scale i / 32, or times the only scale of the
// axis. An axis of two labels, "d(nl)", is split in the shape of the scales.
#pragma once

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
  const std::span bytes(static_cast<const std::byte*>(t.elements->data()), layout.bytes());
  std::vector<extent> blocks = t.shape;
  blocks[axis_of_blocks(t)] = layout.blocks;
  const element_type of_scales = t.type == dtype::q8 ? element_type::f16 : element_type::f32;
  const array integers(element_type::i8, t.shape, bytes.first(layout.size), t.elements);
  const auto scales = bytes.subspan(layout.first_scale());
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

}  // namespace fmoe::io
