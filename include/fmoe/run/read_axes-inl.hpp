// SPDX-License-Identifier: MIT
// Finds out how the operations of a program read their parameters.
#pragma once

#include <fmoe/planner/planner.hpp>
#include <fmoe/run/read_axes.hpp>

namespace fmoe::detail {

// The longest axis of a constant that satisfies the condition; neighbours that do are one axis to
// memory.
template <class Condition>
block_axis longest_axis(const planner::program& p, const planner::use& u, Condition condition) {
  block_axis longest{0, 1};
  extent stride = 1;
  for (extent at = u.labels.size(); at > 0;) {
    block_axis axis{1, stride};
    for (; at > 0 && condition(u.labels[at - 1]); --at) axis.length *= p[u.value].shape[at - 1];
    if (axis.length > longest.length && axis.length > 1) longest = axis;
    stride = axis.stride * axis.length;
    for (; at > 0 && !condition(u.labels[at - 1]); --at) stride *= p[u.value].shape[at - 1];
  }
  return longest;
}

template <class Level>
std::vector<read_axis> read_axes(const lowered_graph& layer) {
  const planner::program p = planner::lower(layer.nodes(), layer.roots(), {});
  std::vector<read_axis> axes;
  for (const planner::operation& o : p.operations) {
    const bool is_product = planner::is<planner::gemm_op>(o),
               is_gather = planner::is<planner::gather_op>(o);
    if (!is_product && !is_gather && !planner::is<planner::sample_op>(o)) continue;
    const planner::use& weight = o.in.back();
    const planner::value& v = p[weight.value];
    if (!v.leaf || !v.parameter) continue;
    const auto is_summed = [&](char label) {
      return has(o.in[0].labels, label) && !has(o.out.labels, label);
    };
    const auto is_of_row = [&](char label) { return label == weight.labels.back(); };
    axes.push_back({p.leaves[*v.leaf].data.get(), is_product ? longest_axis(p, weight, is_summed)
                                                             : longest_axis(p, weight, is_of_row)});
  }
  return axes;
}

}  // namespace fmoe::detail
