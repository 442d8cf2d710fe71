// SPDX-License-Identifier: MIT
// The sparse mask among the operands of an einsum: the pairs of two labels that the sum leaves out.
#pragma once

#include <algorithm>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::planner {

struct einsum_mask {
  static constexpr extent most_operands = 8;  // operands beside the mask

  pair_set left_out{};
  axis_labels labels{};  // the labels of a pair
  bool swapped = false;  // the first label is the second one of a pair

  explicit operator bool() const { return left_out != nullptr; }

  // Throws value_error unless other operands have both labels, too.
  void check(const vector<axis_labels>& others) const {
    for (const char c : labels)
      expects<value_error>(
          labels[0] != labels[1] &&
              std::ranges::any_of(others, [&](const auto& other) { return has(other, c); }),
          "[all_except] needs two different labels that other operands have: '", c, "' of \"",
          labels, '"');
    expects<value_error>(others.size() <= most_operands,
                         "[all_except] goes with at most 8 operands, not ", others.size());
  }

  // Puts a label of the result second, because the sum is computed again for each place along it.
  // If the result has neither label, it gets one.
  axis_labels orient(axis_labels result) {
    swapped = has(result, labels[0]) && !has(result, labels[1]);
    if (swapped) std::swap(labels[0], labels[1]);
    return has(result, labels[1]) ? result : result + labels[1];
  }
};

}  // namespace fmoe::planner
