// SPDX-License-Identifier: MIT
// Finds the token axis: an axis that leads the inputs, that every operation only carries along or
// sums over whole, and that leads each result which has it. Rows along it can be computed in tiles
// of any size. An expression without one is computed whole.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <fmoe/ir/graph.hpp>

namespace fmoe::planner {

// For each node the position of its token axis, -1 for a node without one: a parameter, or a sum
// over tokens.
using token_axes = std::vector<int>;

// True if the graph is that of a compiled layer, whose rows come with the call.
inline bool has_arguments(const ir::graph& g) {
  for (extent i = 0; i < g.size(); ++i) {
    const auto* l = get_if<ir::leaf_node>(&g[static_cast<ir::node_id>(i)].op);
    if (l != nullptr && l->argument >= 0) return true;
  }
  return false;
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
  std::vector<ir::axis_id> candidates(const ir::node_list& results) const {
    std::vector<ir::axis_id> found;
    const auto add = [&](const ir::node& n) {
      if (n.axes.empty()) return;
      const auto is_known = [&](ir::axis_id a) { return graph_.same(a, n.axes[0]); };
      if (std::ranges::none_of(found, is_known)) found.push_back(n.axes[0]);
    };
    for (const ir::node_id r : results) add(graph_[r]);
    for (extent i = 0; i < graph_.size(); ++i) {
      const ir::node& n = graph_[static_cast<ir::node_id>(i)];
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
    for (extent i = 0; i < graph_.size() && valid_; ++i) {
      const ir::node& n = graph_[static_cast<ir::node_id>(i)];
      axes_.push_back(visit([&](const auto& op) { return axis_of(op, n); }, n.op));
      any |= axes_.back() == 0;
    }
    return valid_ && any && std::ranges::all_of(results, [&](ir::node_id r) { return at(r) <= 0; });
  }

  int at(ir::node_id id) const { return axes_[static_cast<extent>(id)]; }
  int reject() {
    valid_ = false;
    return -1;
  }

  int axis_of(const ir::leaf_node& l, const ir::node& n) {
    const bool has_axis = is_input(l) && !n.axes.empty() && graph_.same(n.axes[0], token_);
    if (!has_axis && l.argument >= 0) return reject();
    return has_axis ? 0 : -1;
  }
  int axis_of(const ir::mask_node&, const ir::node&) const { return -1; }
  int axis_of(const ir::map_node& m, const ir::node&) const { return at(m.arg); }

  int axis_of(const ir::einsum_node& e, const ir::node&) {
    char token = 0;
    for (extent i = 0; i < e.args.size(); ++i)
      if (at(e.args[i]) >= 0) {
        const char c = operand_labels(e.subscripts, i)[static_cast<extent>(at(e.args[i]))];
        if (token != 0 && token != c) return reject();
        token = c;
      }
    if (token == 0) return -1;
    for (extent i = 0; i < e.args.size(); ++i) {  // no other axis may be indexed by the token
      const auto labels = operand_labels(e.subscripts, i);
      for (extent k = 0; k < labels.size(); ++k)
        if ((labels[k] == token) != (static_cast<int>(k) == at(e.args[i]))) return reject();
    }
    const auto where = result_labels(e.subscripts).find(token);
    if (where != std::string_view::npos) return static_cast<int>(where);
    return has_mask(e) ? reject() : -1;
  }

  // True for a sum without some pairs, which is made again row by row.
  bool has_mask(const ir::einsum_node& e) const {
    return std::ranges::any_of(
        e.args, [&](ir::node_id a) { return holds_alternative<ir::mask_node>(graph_[a].op); });
  }

  int axis_of(const ir::add_node& a, const ir::node&) {
    const int lead = static_cast<int>(graph_.rank(a.left) - graph_.rank(a.right));
    const int left = at(a.left), right = at(a.right) < 0 ? -1 : at(a.right) + lead;
    if (left < 0) return right < 0 ? left : reject();
    if (right >= 0) return left == right ? left : reject();
    // A constant cannot be indexed by the token.
    return left < lead ? left : reject();
  }

  // Returns the token axis, unless the rows lie along it.
  int across(ir::node_id arg) {
    const int a = at(arg);
    return a >= 0 && a + 1 == static_cast<int>(graph_.rank(arg)) ? reject() : a;
  }
  int axis_of(const ir::row_function_node& g, const ir::node&) {
    const int a = across(g.arg);
    if (!g.bound) return a;
    const int lead = static_cast<int>(graph_.rank(g.arg) - graph_.rank(*g.bound)) - 1,
              b = at(*g.bound);
    const bool fits = b >= 0 ? b + lead == a : a < lead;
    return fits ? a : reject();
  }
  int axis_of(const ir::row_norm_node& n, const ir::node&) { return across(n.arg); }
  int axis_of(const ir::select_node& s, const ir::node&) {
    const bool lists = s.rule.what == selection_rule::kind::product_top_k &&
                       at(s.arg) + 2 == static_cast<int>(graph_.rank(s.arg));
    const int a = lists ? reject() : across(s.arg);
    if (s.rule.what == selection_rule::kind::expert_choice && a < 0) return reject();
    return s.ranked && at(*s.ranked) != a ? reject() : a;
  }
  int axis_of(const ir::kept_node& k, const ir::node&) { return across(k.arg); }
  int axis_of(const ir::append_node& a, const ir::node&) { return across(a.arg); }

  int axis_of(const ir::concat_node& c, const ir::node&) {
    for (const ir::node_id a : c.args)
      if (at(a) != at(c.args[0])) return reject();
    return at(c.args[0]) == static_cast<int>(c.axis) ? reject() : at(c.args[0]);
  }

  const ir::graph& graph_;
  bool arguments_only_, valid_ = true, found_ = false;
  ir::axis_id token_{};
  token_axes axes_;
};

}  // namespace fmoe::planner
