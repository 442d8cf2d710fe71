// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/gradients/differentiate.hpp>
#include <fmoe/gradients/reverse.hpp>
#include <fmoe/ir/live.hpp>
#include <fmoe/planner/expand.hpp>

namespace fmoe::detail {

// Adds nodes with their einsums as pairs, in the order in which the planner contracts them, and
// returns the numbers of the copies. What is differentiated are these: so the gradients are made
// from the products of the forward pass, which the planner finds again.
inline vector<ir::node_id> as_pairs(ir::graph& g, const vector<ir::node_id>& nodes) {
  const ir::live_graph part = ir::live(g, ir::node_list(nodes));
  const planner::expanded_graph pairs = planner::expand(part.nodes, part.roots, {});
  list_by<ir::node_id, ir::node_id> number;
  for (const ir::node_id id : pairs.nodes.ids()) {
    ir::node copy = pairs.nodes[id];
    if (auto* e = get_if<ir::einsum_node>(&copy.op)) e->unmasked.reset();
    ir::each_operand(copy, [&](ir::node_id& operand) { operand = number[operand]; });
    number.push_back(g.append(std::move(copy)));
  }
  vector<ir::node_id> made;
  for (const ir::node_id id : pairs.roots) made.push_back(number[id]);
  return made;
}

FMOE_INLINE vector<std::optional<ir::node_id>> differentiate(ir::graph& g,
                                                             const vector<ir::node_id>& y,
                                                             const vector<ir::node_id>& dy,
                                                             const vector<ir::node_id>& wanted) {
  for (extent i = 0; i < y.size(); ++i)
    expects<shape_error>(g.join_axes(y[i], dy[i]), "[gradient] dy has not the shape of y");
  vector<ir::node_id> nodes = y;
  nodes.insert(nodes.end(), wanted.begin(), wanted.end());
  nodes = as_pairs(g, nodes);
  const std::span<const ir::node_id> made = nodes;
  return reverse::gradients_of(g, made.first(y.size()), dy, made.subspan(y.size()));
}

FMOE_INLINE ir::node_id gradient_of_part(ir::graph& g, ir::node_id y, ir::node_id dy,
                                         ir::node_id part) {
  const ir::leaf_node* const leaf = get_if<ir::leaf_node>(&g[part].op);
  // Another node has the elements if one of the two is a parameter and the other one is not.
  const auto is_part = [&](ir::node_id id) {
    const auto* const l = get_if<ir::leaf_node>(&g[id].op);
    return id == part ||
           (leaf != nullptr && l != nullptr && leaf->data != nullptr && leaf->type == l->type &&
            leaf->shape == l->shape && leaf->axis == l->axis && leaf->same_elements(*l));
  };
  list_by<ir::node_id, bool> needed(g.size(), false);
  needed[y] = true;
  vector<ir::node_id> found;
  for (extent i = g.size(); i-- > 0;) {
    const auto id = static_cast<ir::node_id>(i);
    if (!needed[id]) continue;
    if (is_part(id)) found.push_back(id);
    ir::each_operand(g[id], [&](ir::node_id operand) { needed[operand] = true; });
  }
  expects<value_error>(!found.empty(),
                       "[gradient] y does not depend on what the gradient is asked of: ask it of "
                       "the parameter or the tensor that y was made of, or of a part of y");
  std::optional<ir::node_id> sum;
  for (const auto& made : differentiate(g, {y}, {dy}, found))
    if (made) sum = sum ? g.add(*sum, *made) : *made;
  return sum ? *sum : g.map(pointwise::scale, 0, found[0]);
}

FMOE_INLINE bool rows_depend(const ir::graph& g, const ir::node_list& results) {
  const ir::live_graph part = ir::live(g, results);
  const auto axes =
      planner::token_search(part.nodes, part.roots, planner::has_arguments(part.nodes)).axes();
  if (!axes) return true;
  for (const ir::node_id id : part.nodes.ids()) {
    const ir::node& n = part.nodes[id];
    const auto* s = get_if<ir::select_node>(&n.op);
    if (s != nullptr && s->rule.what == selection_rule::kind::expert_choice) return true;
    bool has_tokens = false;
    ir::each_operand(n, [&](ir::node_id operand) { has_tokens |= (*axes)[operand].has_value(); });
    if (has_tokens && !(*axes)[id]) return true;
  }
  return false;
}

}  // namespace fmoe::detail
