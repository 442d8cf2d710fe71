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

#include <fmoe/base/separate.hpp>
#include <fmoe/io/array.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

// Returns the labels of each axis: "d(nl)" has the axes "d" and "nl".
std::vector<std::string> axes_in(std::string_view labels);

std::string without_parentheses(std::string_view labels);

// Keeps the extent of each label, and checks that equal labels have equal extents.
class label_extents {
 public:
  void check(const std::string& tensor, std::string_view labels, std::span<const extent> shape,
             const std::filesystem::path& file);

  // Learns the extents of labels that no earlier tensor has told. Returns true if there were such
  // labels.
  bool learn(const std::string& tensor, std::string_view labels, std::span<const extent> shape);

  // Returns a shape with one axis for each label; all labels must be known.
  std::vector<extent> extents_of(std::string_view labels) const;

  // Returns a text such as "[19, *] (ho, h = 19 in "W_enc")".
  std::string text_of(std::string_view labels) const;

 private:
  struct seen {
    extent length;
    std::string tensor;
  };

  std::vector<extent> expected(std::string_view labels) const;

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

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/axes-inl.hpp>
#endif
