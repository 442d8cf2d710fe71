// SPDX-License-Identifier: MIT
// Parts of tensors along an axis. Weights of 8 bits have two arrays, integers and scales, of which
// a part has its own.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/io/opened_safetensors.hpp>

namespace fmoe::detail {

// Calls f(from, at, bytes) for each run of bytes of a part: `from` is its place in the part, and
// `at` that in the whole.
template <class F>
void for_each_run(const io::axis_part& part, extent element_bytes, const F& f) {
  const std::span<const extent> shape = part.shape;
  const extent inner = element_count(shape.subspan(part.axis + 1)) * element_bytes,
               outer = element_count(shape.first(part.axis)), run = part.count * inner;
  for (extent o = 0; o < outer && run > 0; ++o)
    f(o * run, (o * shape[part.axis] + part.first) * inner, run);
}

// Returns the scales that belong to a part of the integers of a tensor of 8 bits.
inline io::axis_part scales_of_part(const any_tensor& t, io::axis_part part) {
  const extent along = axis_of_blocks(t);
  const quantized_layout layout(t.type, element_count(t.shape), t.axis);
  part.shape[along] = layout.blocks;
  if (along != part.axis) return part;
  const extent end = divide_up(part.first + part.count, layout.block);
  part.first /= layout.block;
  part.count = end - part.first;
  return part;
}

// Returns a tensor with `count` entries along an axis and no elements.
inline any_tensor outline_of_part(const any_tensor& t, extent axis, extent count) {
  any_tensor part{t.type, t.shape, std::make_shared<storage>(0)};
  part.shape[axis] = count;
  if (is_quantized_type(t.type)) part.axis = axis_of(part.shape, axis_of_blocks(t));
  return part;
}

// Returns `count` neighbours along an axis, as a copy.
inline any_tensor part_of(const any_tensor& t, extent axis, extent first, extent count) {
  any_tensor result = outline_of_part(t, axis, count);
  result.elements = std::make_shared<storage>(result.numbers().bytes());
  const auto* const source = static_cast<const std::byte*>(t.elements->data());
  auto* const target = static_cast<std::byte*>(result.elements->data());
  const auto copy = [](const io::axis_part& part, extent element_bytes, const std::byte* whole,
                       std::byte* to) {
    for_each_run(part, element_bytes, [&](extent from, extent at, extent bytes) {
      std::memcpy(to + from, whole + at, bytes);
    });
  };
  const io::axis_part part{t.shape, axis, first, count};
  copy(part, size_of(t.type), source, target);
  if (!is_quantized_type(t.type)) return result;
  const auto layout_of = [](const any_tensor& q) {
    return quantized_layout(q.type, element_count(q.shape), q.axis);
  };
  const quantized_layout all = layout_of(t);
  copy(scales_of_part(t, part), all.scale_bytes, source + all.first_scale(),
       target + layout_of(result).first_scale());
  return result;
}

}  // namespace fmoe::detail
