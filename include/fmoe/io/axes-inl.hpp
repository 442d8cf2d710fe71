// SPDX-License-Identifier: MIT
// What the labels of axes say.
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

}  // namespace fmoe::io
