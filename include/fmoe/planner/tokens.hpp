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
      const ir::node& n = graph_[id];
      axes_.push_back(visit([&](const auto& op) { return axis_of(op, n); }, n.op));
      any |= axes_.back() == extent{0};
      if (!valid_) return false;
    }
    const auto leads = [&](ir::node_id r) { return at(r).value_or(0) == 0; };
    return any && std::ranges::all_of(results, leads);
  }

  token_axis at(ir::node_id id) const { return axes_[id]; }
  token_axis reject() {
    valid_ = false;
    return {};
  }

  token_axis axis_of(const ir::leaf_node& l, const ir::node& n) {
    const bool has_axis = is_input(l) && !n.axes.empty() && graph_.same(n.axes[0], token_);
    if (!has_axis && l.argument >= 0) return reject();
    return has_axis ? token_axis(0) : token_axis();
  }
  token_axis axis_of(const ir::mask_node&, const ir::node&) const { return {}; }
  token_axis axis_of(const ir::map_node& m, const ir::node&) const { return at(m.arg); }

  token_axis axis_of(const ir::einsum_node& e, const ir::node&) {
    char token = 0;
    for (extent i = 0; i < e.args.size(); ++i)
      if (const token_axis axis = at(e.args[i])) {
        const char c = operand_labels(e.subscripts, i)[*axis];
        if (token != 0 && token != c) return reject();
        token = c;
      }
    if (token == 0) return {};
    for (extent i = 0; i < e.args.size(); ++i) {  // no other axis may be indexed by the token
      const auto labels = operand_labels(e.subscripts, i);
      for (extent k = 0; k < labels.size(); ++k)
        if ((labels[k] == token) != (at(e.args[i]) == k)) return reject();
    }
    const auto where = result_labels(e.subscripts).find(token);
    if (where != std::string_view::npos) return where;
    return has_mask(e) ? reject() : token_axis();
  }

  // True for a sum without some pairs, which is made again row by row.
  bool has_mask(const ir::einsum_node& e) const {
    return std::ranges::any_of(
        e.args, [&](ir::node_id a) { return holds_alternative<ir::mask_node>(graph_[a].op); });
  }

  token_axis axis_of(const ir::join_node& a, const ir::node&) {
    const extent lead = graph_.rank(a.left) - graph_.rank(a.right);
    const token_axis left = at(a.left), right = at(a.right);
    if (!left) return right ? reject() : left;
    if (right) return *left == *right + lead ? left : reject();
    // A constant cannot be indexed by the token.
    return *left < lead ? left : reject();
  }

  // Returns the token axis, unless the rows lie along it.
  token_axis across(ir::node_id arg) {
    const token_axis a = at(arg);
    return a == graph_.rank(arg) - 1 ? reject() : a;
  }
  token_axis axis_of(const ir::row_function_node& g, const ir::node&) {
    const token_axis a = across(g.arg);
    if (!g.bound) return a;
    const extent lead = graph_.rank(g.arg) - graph_.rank(*g.bound) - 1;
    const token_axis b = at(*g.bound);
    if (b) return a == *b + lead ? a : reject();
    return !a || *a < lead ? a : reject();
  }
  token_axis axis_of(const ir::row_norm_node& n, const ir::node&) { return across(n.arg); }
  token_axis axis_of(const ir::select_node& s, const ir::node&) {
    const bool lists = takes_two_rows(s.rule.what) && at(s.arg) == graph_.rank(s.arg) - 2;
    const token_axis a = lists ? reject() : across(s.arg);
    if (s.rule.what == selection_rule::kind::expert_choice && !a) return reject();
    return s.ranked && at(*s.ranked) != a ? reject() : a;
  }
  token_axis axis_of(const ir::kept_node& k, const ir::node&) { return across(k.arg); }
  token_axis axis_of(const ir::slice_node& s, const ir::node&) {
    return at(s.arg) == s.axis ? reject() : at(s.arg);
  }
  token_axis axis_of(const ir::unpair_node& u, const ir::node&) { return across(u.arg); }
  token_axis axis_of(const ir::append_node& a, const ir::node&) { return across(a.arg); }

  token_axis axis_of(const ir::concat_node& c, const ir::node&) {
    for (const ir::node_id a : c.args)
      if (at(a) != at(c.args[0])) return reject();
    return at(c.args[0]) == c.axis ? reject() : at(c.args[0]);
  }

  const ir::graph& graph_;
  bool arguments_only_, valid_ = true, found_ = false;
  ir::axis_id token_{};
  token_axes axes_;
};

}  // namespace fmoe::planner
