// SPDX-License-Identifier: MIT
// The axes of released tensors: their order, and the extents on which their labels must agree.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/array.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

// Returns the labels of each axis: "d(nl)" has the axes "d" and "nl".
inline std::vector<std::string> axes_in(std::string_view labels) {
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

inline std::string without_parentheses(std::string_view labels) {
  std::string flat;
  for (const char c : labels)
    if (c != '(' && c != ')') flat += c;
  return flat;
}

// Keeps the extent of each label, and checks that equal labels have equal extents.
class label_extents {
 public:
  void check(const std::string& tensor, std::string_view labels, std::span<const extent> shape,
             const std::filesystem::path& file) {
    const auto fits = [](extent found, extent wanted) { return wanted == any || found == wanted; };
    const auto wanted = expected(labels);
    const bool equal = std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end(), fits);
    if (equal) learn(tensor, labels, shape);
    if (!equal || !std::ranges::all_of(without_parentheses(labels),
                                       [&](char c) { return known_.contains(c); }))
      throw error(errc::shape,
                  "is " + io::text_of(shape) + " and " + text_of(labels) + " is expected", 0,
                  tensor, file);
  }

  // Learns the extents of labels that no earlier tensor has told. Returns true if there were such
  // labels.
  bool learn(const std::string& tensor, std::string_view labels, std::span<const extent> shape) {
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

  // Returns a shape with one axis for each label; all labels must be known.
  std::vector<extent> extents_of(std::string_view labels) const {
    std::vector<extent> shape;
    for (const char c : labels) shape.push_back(known_.at(c).length);
    return shape;
  }

  // Returns a text such as "[19, *] (ho, h = 19 in "W_enc")".
  std::string text_of(std::string_view labels) const {
    std::string text = io::text_of(expected(labels)) + " (" + std::string(labels);
    for (const char c : labels)
      if (const auto k = known_.find(c); k != known_.end())
        text += std::string(", ") + c + " = " + std::to_string(k->second.length) + " in " +
                in_quotes(k->second.tensor);
    return text + ')';
  }

 private:
  struct seen {
    extent length;
    std::string tensor;
  };

  std::vector<extent> expected(std::string_view labels) const {
    std::vector<extent> shape;
    for (const std::string& axis : axes_in(labels)) {
      shape.push_back(1);
      for (const char c : axis)
        shape.back() =
            shape.back() != any && known_.contains(c) ? shape.back() * known_.at(c).length : any;
    }
    return shape;
  }

  std::map<char, seen> known_;
};

// Returns the tensor with its axes in another order. It writes sixteen rows at a time, so that
// reading along an axis that becomes the first one uses whole cache lines.
template <class T, std::size_t Rank>
tensor<T, Rank> permuted(const tensor<T, Rank>& t, std::string_view from, std::string_view to) {
  if (from == to) return t;
  std::array<extent, Rank> shape{}, stride{};
  for (extent k = 0; k < Rank; ++k) {
    const extent axis = from.find(to[k]);
    shape[k] = t.shape()[axis];
    stride[k] = element_count(std::span(t.shape()).subspan(axis + 1));
  }
  if (t.size() == 0 || t.data() == nullptr) return {shape, t.shared_storage()};
  tensor<T, Rank> result(shape);
  const extent rest = t.size() / shape[0], block = 16;
  for (extent first = 0; first < shape[0]; first += block)
    for (extent r = 0; r < rest; ++r) {
      extent at = 0, index = r;
      for (extent k = Rank; k-- > 1; index /= shape[k]) at += index % shape[k] * stride[k];
      for (extent i = first; i < std::min(first + block, shape[0]); ++i)
        result.data()[i * rest + r] = t.data()[i * stride[0] + at];
    }
  return result;
}

}  // namespace fmoe::io
