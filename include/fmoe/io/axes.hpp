// SPDX-License-Identifier: MIT
// The axes of released tensors: the extents that their labels must agree on, and their order.
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

// Equal labels have equal extents.
class label_extents {
 public:
  void check(const std::string& tensor, std::string_view labels, std::span<const extent> shape,
             const std::filesystem::path& file) {
    const auto fits = [](extent found, extent wanted) { return wanted == any || found == wanted; };
    const auto wanted = expected(labels);
    if (!std::equal(shape.begin(), shape.end(), wanted.begin(), wanted.end(), fits))
      throw error(errc::shape, "is " + io::text_of(shape) + " and " + text_of(labels) + " is expected", 0, tensor,
                  file);
    for (extent i = 0; i < labels.size(); ++i) known_.try_emplace(labels[i], seen{shape[i], tensor});
  }

  // "[19, *] (ho, h = 19 in "W_enc")".
  std::string text_of(std::string_view labels) const {
    std::string text = io::text_of(expected(labels)) + " (" + std::string(labels);
    for (const char c : labels)
      if (const auto k = known_.find(c); k != known_.end())
        text += std::string(", ") + c + " = " + std::to_string(k->second.length) + " in " + in_quotes(k->second.tensor);
    return text + ')';
  }

 private:
  struct seen {
    extent length;
    std::string tensor;
  };

  std::vector<extent> expected(std::string_view labels) const {
    std::vector<extent> shape;
    for (const char c : labels) shape.push_back(known_.contains(c) ? known_.at(c).length : any);
    return shape;
  }

  std::map<char, seen> known_;
};

// The axes in another order. Sixteen rows at a time, so that reading along an axis that becomes the first one uses
// whole cache lines.
template <class T, std::size_t Rank>
tensor<T, Rank> permuted(const tensor<T, Rank>& t, std::string_view from, std::string_view to) {
  if (from == to) return t;
  std::array<extent, Rank> shape{}, stride{};
  for (extent k = 0; k < Rank; ++k) {
    const extent axis = from.find(to[k]);
    shape[k] = t.shape()[axis];
    stride[k] = element_count(std::span(t.shape()).subspan(axis + 1));
  }
  tensor<T, Rank> result(shape);
  if (t.size() == 0) return result;
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
