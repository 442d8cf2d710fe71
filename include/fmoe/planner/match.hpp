// SPDX-License-Identifier: MIT
// Match: each product becomes the kind of kernel that it fits. It is pointwise if nothing is summed
// and the labels of the right operand are the last of the left one. It is gemm if the right operand
// is a constant; the memory of the left operand then ends with the summed labels. All others are
// batched: their labels are in four groups, batch (in all three), free (left and result), summed,
// and vector (right and result).
#pragma once

#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

inline void match(program& p) {
  vector<operation> done;
  for (operation& o : p.operations) {
    if (is<product_op>(o)) {
      use &left = o.in[0], &right = o.in[1];
      const label_groups g = groups_of(o);
      const bool constant = !p[left.value].is_constant() && p[right.value].is_constant();
      if (is_hadamard(o)) {
        o = as_pointwise(std::move(o));
      } else if (constant && !g.is_elementwise()) {
        o.what = gemm_op{};
        const axis_labels rows =
            labels_where(o.out.labels, [&](char c) { return has(left.labels, c); });
        left = in_order(p, left, rows + g.summed, done, o.group);
      } else {
        o.what = batched_op{};
      }
    }
    done.push_back(std::move(o));
  }
  p.operations = std::move(done);
}

}  // namespace fmoe::planner
