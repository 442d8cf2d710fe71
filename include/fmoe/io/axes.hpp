// SPDX-License-Identifier: MIT
// The axes of released tensors: their order, and the extents on which their labels must agree.
#pragma once

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

// Returns the tensor with its axes in another order. Each text has one label for each axis.
any_tensor permuted(const any_tensor& t, std::string_view from, std::string_view to);

// The same for a tensor that nobody writes: the elements are copied when somebody first reads them
// in this order, and products are packed without that.
any_tensor permuted_when_read(const any_tensor& t, std::string_view from, std::string_view to);

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/axes-inl.hpp>
#endif
