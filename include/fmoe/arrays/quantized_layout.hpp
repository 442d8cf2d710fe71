// SPDX-License-Identifier: MIT
// How the numbers of a tensor lie in memory, and how weights of 8 bits do: all integers in
// row-major order, and from the next cache line on the scales, in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <fmoe/base/dtype.hpp>
#include <fmoe/base/memory.hpp>

namespace fmoe::detail {

// The axis along which the blocks of 8-bit weights lie: its length, and the distance of neighbours
// in elements. It is the same axis in whatever shape the elements are viewed.
struct block_axis {
  extent length = 1, stride = 1;

  bool operator==(const block_axis&) const = default;
};

// Where the integers and scales of 8-bit weights are.
struct quantized_layout {
  extent size;  // weights
  block_axis axis;
  extent block, blocks;  // weights of a block, and blocks along the axis
  extent scale_bytes;    // of one scale

  quantized_layout(dtype type, extent n, block_axis along) : size(n), axis(along) {
    with_quantized_type(type, [&]<class Q>(Q*) {
      block = std::max<extent>(1, std::min(Q::block, axis.length));
      scale_bytes = sizeof(typename Q::scale);
    });
    blocks = divide_up(axis.length, block);
  }

  // The place among the scales of that of weight i.
  extent scale_of(extent i) const {
    const extent outer = i / (axis.length * axis.stride), inner = i % axis.stride,
                 along = i / axis.stride % axis.length;
    return (outer * blocks + along / block) * axis.stride + inner;
  }
  // Calls f(first, count, scale, step) for runs of neighbours, in order and without a division for
  // each: weight first + i of a run has scale number scale + i step.
  template <class F>
  void for_each_run(F&& f) const {
    const extent outers = size == 0 ? 0 : size / (axis.length * axis.stride);
    for (extent outer = 0; outer < outers; ++outer)
      for (extent b = 0; b < blocks; ++b) {
        const extent from = b * block, count = std::min(block, axis.length - from);
        const extent first = (outer * axis.length + from) * axis.stride,
                     scale = (outer * blocks + b) * axis.stride;
        if (axis.stride == 1) f(first, count, scale, extent{0});
        else
          for (extent k = 0; k < count; ++k)
            f(first + k * axis.stride, axis.stride, scale, extent{1});
      }
  }
  extent scales() const { return size == 0 ? 0 : size / axis.length * blocks; }
  extent first_scale() const { return round_up(size, cache_line); }  // in bytes
  extent bytes() const { return first_scale() + scales() * scale_bytes; }
};

// True if weights at such offsets along k have one scale in each group of so many.
inline bool has_scales_of_groups(const quantized_layout& layout, std::span<const extent> k_offsets,
                                 extent group) {
  for (extent k = 0; k < k_offsets.size(); ++k)
    if (layout.scale_of(k_offsets[k]) != layout.scale_of(k_offsets[k / group * group]))
      return false;
  return true;
}

// The elements of a tensor of any type.
struct stored_numbers {
  dtype type;
  const void* data;
  extent size;
  block_axis axis;

  extent bytes() const {
    return is_quantized_type(type) ? quantized_layout(type, size, axis).bytes()
                                   : size * size_of(type);
  }
};

// The bytes of a number, with its part of a scale.
inline double bytes_each(const stored_numbers& n) {
  if (!is_quantized_type(n.type)) return static_cast<double>(size_of(n.type));
  const quantized_layout layout(n.type, n.size, n.axis);
  return 1 + static_cast<double>(layout.scale_bytes) / static_cast<double>(layout.block);
}

// Calls f with a function that returns number i as a To.
template <class To, class F>
void with_numbers(const stored_numbers& n, F&& f) {
  if (!is_quantized_type(n.type)) {
    with_type(n.type, [&]<class T>(T*) {
      f([from = static_cast<const T*>(n.data)](extent i) { return convert<To>(from[i]); });
    });
    return;
  }
  with_quantized_type(n.type, [&]<class Q>(Q*) {
    const quantized_layout layout(n.type, n.size, n.axis);
    const auto* const integers = static_cast<const std::int8_t*>(n.data);
    const auto* const scales =
        reinterpret_cast<const typename Q::scale*>(integers + layout.first_scale());
    f([=](extent i) {
      return convert<To>(static_cast<float>(integers[i]) *
                         convert<float>(scales[layout.scale_of(i)]));
    });
  });
}

// Writes all numbers as Ts, and those of 8 bits without a division for each.
template <class To>
void copy_numbers(const stored_numbers& n, To* to) {
  if (!is_quantized_type(n.type)) {
    with_numbers<To>(n, [&](const auto& number) {
      for (extent i = 0; i < n.size; ++i) to[i] = number(i);
    });
    return;
  }
  with_quantized_type(n.type, [&]<class Q>(Q*) {
    const quantized_layout layout(n.type, n.size, n.axis);
    const auto* const integers = static_cast<const std::int8_t*>(n.data);
    const auto* const scales =
        reinterpret_cast<const typename Q::scale*>(integers + layout.first_scale());
    layout.for_each_run([&](extent first, extent count, extent scale, extent step) {
      for (extent i = 0; i < count; ++i)
        to[first + i] = convert<To>(static_cast<float>(integers[first + i]) *
                                    convert<float>(scales[scale + i * step]));
    });
  });
}

}  // namespace fmoe::detail
