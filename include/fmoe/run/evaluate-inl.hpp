// SPDX-License-Identifier: MIT
// The check of the array that evaluate writes.
#pragma once

#include <string>

#include <fmoe/ir/graph.hpp>
#include <fmoe/run/evaluate.hpp>

namespace fmoe::detail {

FMOE_INLINE void expects_output(const lowered_graph& e, dtype type, const array_view& y) {
  const auto shape = e.shape(0);
  const expected_array output{
      .row = shape, .type = type, .is = expected_array::role::output, .per_token = false};
  const auto name = [](extent) -> std::string { return "the output"; };
  call_check{
      .call = "[evaluate]", .computed = "the expression", .name = name, .arrays = {&output, 1}}(
      [&](extent) -> const array_view& { return y; });
  const ir::graph& g = e.nodes();
  for (const ir::node_id id : g.ids())
    if (const auto* l = get_if<ir::leaf_node>(&g[id].op); l != nullptr && l->data != nullptr)
      expects<value_error>(
          !overlap(y, {l->data->address(), l->type, 1, {element_count(l->shape)}, {1}}),
          "[evaluate] the output overlaps an operand");
}

}  // namespace fmoe::detail
