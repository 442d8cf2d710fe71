// SPDX-License-Identifier: MIT
// Mask: 0 at some pairs and 1 elsewhere, as a list of these pairs. It is an operand of einsum only,
// which is planned without it and made again where it has one.
#pragma once

#include <fmoe/base/pairs.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/ids.hpp>

namespace fmoe::ir {

struct mask_node {
  pair_set left_out;
  extent rows, columns;
  bool operator==(const mask_node&) const = default;

  static void each_operand(auto&, const auto&) {}
  const char* name() const { return "all but a few pairs"; }

  vector<axis_id> axes(auto& graph) const {
    return {graph.new_axis(rows), graph.new_axis(columns)};
  }
  auto token_axis(auto& tokens) const { return tokens.none(); }
  auto lower(auto& to) const { return to.of_mask(); }
  void pull(auto&, node_id, node_id) const {}
  // A matrix of 0 and 1.
  node_id dense(auto& g) const {
    vector<float> numbers(rows * columns, 1);
    for (const auto& [i, j] : *left_out) numbers[i * columns + j] = 0;
    return constant(g, {rows, columns}, [&](extent at) { return numbers[at]; });
  }

  void list_ways(auto& ways) const { ways.add_rows(); }
};

}  // namespace fmoe::ir
