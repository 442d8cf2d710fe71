// SPDX-License-Identifier: MIT
// What the labels of axes say, and how axes change places.
#pragma once

#include <algorithm>

#include <fmoe/io/axes.hpp>

namespace fmoe::io {

FMOE_INLINE std::vector<std::string> axes_in(std::string_view labels) {
  std::vector<std::string> axes;
  bool inside = false;
  for (const char c : labels) {
    if (c == '(' || c == ')') inside = c == '(';
    if (c == '(') axes.emplace_back();
    if (c == '(' || c == ')') continue;
    if (inside) axes.back() += c;
    else axes.emplace_back(1, c);
  }
  return axes;
}

FMOE_INLINE std::string without_parentheses(std::string_view labels) {
  std::string flat;
  for (const char c : labels)
    if (c != '(' && c != ')') flat += c;
  return flat;
}

FMOE_INLINE void label_extents::check(const std::string& tensor, std::string_view labels,
                                      std::span<const extent> shape,
                                      const std::filesystem::path& file) {
  const auto fits = [](extent found, extent wanted) { return wanted == all || found == wanted; };
  const auto wanted = expected(labels);
  const bool equal = std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end(), fits);
  if (equal) learn(tensor, labels, shape);
  if (!equal ||
      !std::ranges::all_of(without_parentheses(labels), [&](char c) { return known_.contains(c); }))
    throw error(errc::shape,
                "is " + io::text_of(shape) + " and " + text_of(labels) + " is expected", 0, tensor,
                file);
}

FMOE_INLINE bool label_extents::learn(const std::string& tensor, std::string_view labels,
                                      std::span<const extent> shape) {
  const auto axes = axes_in(labels);
  bool news = false;
  for (extent i = 0; i < axes.size() && axes.size() == shape.size(); ++i) {
    extent rest = shape[i];
    std::string open;
    for (const char c : axes[i]) {
      const auto k = known_.find(c);
      if (k == known_.end()) open += c;
      else if (k->second.length != 0 && rest % k->second.length == 0) rest /= k->second.length;
      else open = "??";  // it does not divide the axis
    }
    if (open.size() == 1) news = known_.try_emplace(open[0], seen{rest, tensor}).second || news;
  }
  return news;
}

FMOE_INLINE std::vector<extent> label_extents::extents_of(std::string_view labels) const {
  std::vector<extent> shape;
  for (const char c : labels) shape.push_back(known_.at(c).length);
  return shape;
}

FMOE_INLINE std::string label_extents::text_of(std::string_view labels) const {
  std::string text = io::text_of(expected(labels)) + " (" + std::string(labels);
  for (const char c : labels)
    if (const auto k = known_.find(c); k != known_.end())
      text += std::string(", ") + c + " = " + std::to_string(k->second.length) + " in " +
              in_quotes(k->second.tensor);
  return text + ')';
}

FMOE_INLINE std::vector<extent> label_extents::expected(std::string_view labels) const {
  std::vector<extent> shape;
  for (const std::string& axis : axes_in(labels)) {
    shape.push_back(1);
    for (const char c : axis)
      shape.back() =
          shape.back() != all && known_.contains(c) ? shape.back() * known_.at(c).length : all;
  }
  return shape;
}

// Copies elements to the row-major order of `shape`; `strides` has the distance of neighbours in
// `from` along each axis. It writes sixteen rows at a time, so that reading along an axis that
// becomes the first one uses whole cache lines.
template <class T>
void copy_permuted(const T* from, T* to, std::span<const extent> shape,
                   std::span<const extent> strides) {
  const extent rest = element_count(shape.subspan(1)), block = 16;
  for (extent first = 0; first < shape[0]; first += block)
    for (extent r = 0; r < rest; ++r) {
      extent at = 0, index = r;
      for (extent k = shape.size(); k-- > 1; index /= shape[k]) at += index % shape[k] * strides[k];
      for (extent i = first; i < std::min(first + block, shape[0]); ++i)
        to[i * rest + r] = from[i * strides[0] + at];
    }
}

inline void copy_permuted(const permuted_array& source, void* result) {
  const auto copy = [&]<class Bits>(Bits*) {
    copy_permuted(static_cast<const Bits*>(source.data), static_cast<Bits*>(result), source.shape,
                  source.strides);
  };
  switch (source.element_bytes) {
    case 1: return copy(static_cast<std::uint8_t*>(nullptr));
    case 2: return copy(static_cast<std::uint16_t*>(nullptr));
    case 4: return copy(static_cast<std::uint32_t*>(nullptr));
    default: return copy(static_cast<std::uint64_t*>(nullptr));
  }
}

// Returns elements of `size` bytes that have this shape in the order of the labels `from`, as an
// array in that of the labels `to`.
inline permuted_array permuted_from(const void* source, extent size, std::span<const extent> given,
                                    std::string_view from, std::string_view to) {
  permuted_array result{source, nullptr, {}, {}, size, copy_permuted};
  for (const char label : to) {
    const extent axis = from.find(label);
    result.shape.push_back(given[axis]);
    result.strides.push_back(element_count(given.subspan(axis + 1)));
  }
  return result;
}

FMOE_INLINE any_tensor permuted_when_read(const any_tensor& t, std::string_view from,
                                          std::string_view to) {
  if (from == to || is_quantized_type(t.type) || t.empty() || element_count(t.shape) == 0)
    return permuted(t, from, to);
  permuted_array array = permuted_from(t.elements->data(), size_of(t.type), t.shape, from, to);
  array.owner = t.elements->holder();
  return {t.type, array.shape, std::make_shared<storage>(std::move(array))};
}

FMOE_INLINE any_tensor permuted(const any_tensor& t, std::string_view from, std::string_view to) {
  if (from == to) return t;
  std::vector<extent> shape;
  for (const char label : to) shape.push_back(t.shape[from.find(label)]);
  any_tensor result{t.type, shape, t.elements};
  extent blocks = 0;
  if (is_quantized_type(t.type)) {
    blocks = axis_of_blocks(t);
    result.axis = axis_of(shape, to.find(from[blocks]));
  }
  if (element_count(shape) == 0 || t.empty() || t.elements->data() == nullptr) return result;
  result.elements = std::make_shared<storage>(result.numbers().bytes());
  const auto* const source = static_cast<const std::byte*>(t.elements->data());
  auto* const target = static_cast<std::byte*>(result.elements->data());
  copy_permuted(permuted_from(source, size_of(t.type), t.shape, from, to), target);
  if (is_quantized_type(t.type)) {
    const quantized_layout layout(t.type, element_count(shape), t.axis);
    std::vector<extent> scales = t.shape;
    scales[blocks] = layout.blocks;
    copy_permuted(
        permuted_from(source + layout.first_scale(), layout.scale_bytes, scales, from, to),
        target + layout.first_scale());
  }
  return result;
}

}  // namespace fmoe::io
