// SPDX-License-Identifier: MIT
// Finds the token axis: an axis that leads the inputs, that every operation only carries along or
// sums over whole, and that leads each result which has it. Rows along it can be computed in tiles
// of any size. An expression without one is computed whole.
#pragma once

#include <algorithm>
#include <optional>

#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::planner {

// For each node the position of its token axis, which parameters and sums over tokens do not have.
using token_axis = std::optional<extent>;
using token_axes = list_by<ir::node_id, token_axis>;

// True if the graph is that of a compiled layer, whose rows come with the call.
inline bool has_arguments(const ir::graph& g) {
  for (const ir::node_id id : g.ids()) {
    const auto* l = get_if<ir::leaf_node>(&g[id].op);
    if (l != nullptr && l->argument >= 0) return true;
  }
  return false;
}

// True if the elements of a leaf belong to the layer: those of a parameter, and beside arguments
// those of any other leaf that is not one.
inline bool is_weight(const ir::leaf_node& l, bool beside_arguments) {
  return l.parameter || (beside_arguments && l.argument < 0);
}

// Searches for these axes. Rows of the leaves are tokens: with `arguments_only` those of all
// arguments of a compiled layer, otherwise those of any tensor that is not a parameter.
class token_search {
 public:
  token_search(const ir::graph& g, const ir::node_list& results, bool arguments_only)
      : graph_(g),
        arguments_only_(arguments_only) {
    for (const ir::axis_id axis : candidates(results)) {
      token_ = axis;
      found_ = carries(results);
      if (found_) return;
    }
  }

  std::optional<token_axes> axes() const { return found_ ? std::optional(axes_) : std::nullopt; }
  // Returns the extent of the token axis, 1 if there is none.
  extent count() const { return found_ ? graph_.extent_of(token_) : 1; }

  // What the rules of operations are made of.
  const ir::graph& nodes() const { return graph_; }
  extent rank(ir::node_id id) const { return graph_.rank(id); }
  token_axis at(ir::node_id id) const { return axes_[id]; }
  token_axis axis(extent at) const { return at; }
  token_axis none() const { return {}; }
  // The operation neither carries the axis along nor sums over it.
  token_axis reject() {
    valid_ = false;
    return {};
  }
  // Returns the token axis, unless the rows lie along it.
  token_axis across(ir::node_id arg) {
    const token_axis a = at(arg);
    return a == rank(arg) - 1 ? reject() : a;
  }
  token_axis of_leaf(const ir::leaf_node& l) {
    const vector<ir::axis_id>& axes = graph_[id_].axes;
    const bool has_axis = is_input(l) && !axes.empty() && graph_.same(axes[0], token_);
    if (!has_axis && l.argument >= 0) return reject();
    return has_axis ? axis(0) : none();
  }

 private:
  // Returns the first axis of each result, then of each input.
  vector<ir::axis_id> candidates(const ir::node_list& results) const {
    vector<ir::axis_id> found;
    const auto add = [&](const ir::node& n) {
      if (n.axes.empty()) return;
      const auto is_known = [&](ir::axis_id a) { return graph_.same(a, n.axes[0]); };
      if (std::ranges::none_of(found, is_known)) found.push_back(n.axes[0]);
    };
    for (const ir::node_id r : results) add(graph_[r]);
    for (const ir::node_id id : graph_.ids()) {
      const ir::node& n = graph_[id];
      if (const auto* l = get_if<ir::leaf_node>(&n.op); l != nullptr && is_input(*l)) add(n);
    }
    return found;
  }

  bool is_input(const ir::leaf_node& l) const {
    return !l.parameter && (l.argument >= 0 || !arguments_only_);
  }

  // True if every operation carries the axis at hand or sums over it, and it leads the results.
  bool carries(const ir::node_list& results) {
    axes_.clear();
    valid_ = true;
    bool any = false;
    for (const ir::node_id id : graph_.ids()) {
      id_ = id;
      axes_.push_back(visit([&](const auto& op) { return op.token_axis(*this); }, graph_[id].op));
      any |= axes_.back() == extent{0};
      if (!valid_) return false;
    }
    const auto leads = [&](ir::node_id r) { return at(r).value_or(0) == 0; };
    return any && std::ranges::all_of(results, leads);
  }

  const ir::graph& graph_;
  bool arguments_only_, valid_ = true, found_ = false;
  ir::axis_id token_{};
  ir::node_id id_{};  // the node at hand
  token_axes axes_;
};

}  // namespace fmoe::planner
