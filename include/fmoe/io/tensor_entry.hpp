// SPDX-License-Identifier: MIT
// The description of a tensor in a safetensors header, and a check that the descriptions of all
// tensors agree.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <fmoe/io/element_type.hpp>
#include <fmoe/io/file.hpp>

namespace fmoe::io {

struct tensor_entry {
  std::string name;
  element_type type{};
  std::vector<extent> shape;
  std::array<std::uint64_t, 2> range{};  // bytes of the data section; the second one is the end
  std::uint64_t at = 0;                  // byte of the file where the name stands
};

// Throws unless the ranges follow from the shapes and cover the bytes from `data_at` to the end of
// the file without gaps and overlaps.
inline void check_layout(const std::deque<tensor_entry>& tensors, std::uint64_t data_at,
                         const subject& in) {
  std::vector<const tensor_entry*> order;
  order.reserve(tensors.size());
  for (const auto& t : tensors) {
    const auto bits = count_bits(t.shape, bits_of(t.type));
    const auto [begin, end] = t.range;
    if (!bits) in.fail(errc::overflow, t.at, "has a shape whose size does not fit 64 bits", t.name);
    if (begin > end) in.fail(errc::layout, t.at, "ends before it begins", t.name);
    if (*bits % 8 != 0 || *bits / 8 != end - begin)
      in.fail(errc::size_mismatch, t.at,
              "takes " + std::to_string(*bits) + " bits by its shape and has " +
                  std::to_string(end - begin) + " bytes",
              t.name);
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->range < b->range; });
  std::uint64_t next = 0;
  for (const auto* t : order) {
    if (t->range[0] != next)
      in.fail(errc::layout, t->at,
              "begins at byte " + std::to_string(t->range[0]) + " of the data, where byte " +
                  std::to_string(next) + " is next",
              t->name);
    next = t->range[1];
  }
  std::uint64_t file_end = 0;
  if (__builtin_add_overflow(data_at, next, &file_end))
    in.fail(errc::overflow, data_at, "has data whose end does not fit 64 bits");
  if (file_end < in.size) in.fail(errc::layout, file_end, "goes on behind its last tensor");
  for (const auto* t : order)
    if (t->range[1] > in.size - data_at)
      in.fail(errc::truncated, in.size, "has data beyond the file's end", t->name);
}

}  // namespace fmoe::io
