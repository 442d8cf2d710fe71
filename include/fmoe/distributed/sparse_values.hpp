// SPDX-License-Identifier: MIT
// What a selection leaves of the values of a graph: which are 0 but for the entries that it keeps,
// and of which only those entries are read.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <fmoe/distributed/moved_bytes.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

// What a node is for a cut: its axes of tokens and of the label, or that it is a sum over the
// tokens of a call, or made of such sums alone.
struct node_axes {
  std::optional<extent> token, label;
  bool is_sum = false;
  bool is_cut_leaf = false;
  bool has_two_labels = false;
};

using axis_list = list_by<ir::node_id, node_axes>;

// Returns the numbers of a value for one token.
inline double numbers_a_token(const ir::graph& g, const axis_list& axes, ir::node_id id) {
  double n = 1;
  const auto shape = g.shape(id);
  for (extent k = 0; k < shape.size(); ++k)
    if (axes[id].token != k) n *= static_cast<double>(shape[k]);
  return n;
}

inline routing_load load_of(const ir::graph& g, const axis_list& axes, ir::node_id selection) {
  const extent length = g.shape(selection).back();
  const auto n = static_cast<double>(length);
  const auto& rule = get<ir::select_node>(g[selection].op).rule;
  return {static_cast<double>(expected_of(rule, length)), numbers_a_token(g, axes, selection) / n,
          n};
}

class sparse_values {
 public:
  using selection_list = list_by<ir::node_id, std::optional<ir::node_id>>;

  // By the number of a value: the selection without whose entries it is 0, and the one without
  // whose entries nothing reads it. Neither changes along the selection's axis.
  selection_list zero_but_for, sampled_by;

  sparse_values(const ir::graph& g, const ir::node_list& roots, const axis_list& axes)
      : zero_but_for(g.size()),
        g_(&g),
        roots_(roots) {
    for (const ir::node_id id : g.ids())
      if (!axes[id].is_sum) zero_but_for[id] = find_zeros(id);
    sampled_by = sampled_without(std::vector<bool>(g.size(), false));
  }

  // The same as sampled_by where some readers do not count.
  selection_list sampled_without(const std::vector<bool>& readers) const {
    selection_list found(g_->size());
    list_by<ir::node_id, bool> is_read(g_->size(), false);
    for (const ir::node_id r : roots_) is_read[r] = true;
    for (extent i = g_->size(); i-- > 0;) {  // readers first
      const auto id = static_cast<ir::node_id>(i);
      if (readers[i]) continue;
      for (const ir::node_id o : ir::operands((*g_)[id])) {
        const auto by = sampling(id, o, found[id]);
        if (is_read[o] && found[o] != by) found[o].reset();
        if (!is_read[o]) found[o] = by;
        is_read[o] = true;
      }
    }
    return found;
  }

  // By the number of a value: true if it, or the part of a sum that a rank makes of it, is 0 for
  // the tokens that selected no entry of the rank.
  std::vector<bool> vanishing_with(ir::node_id selection) const {
    std::vector<bool> found(g_->size(), false);
    const auto is_0 = [&](ir::node_id o) { return found[static_cast<extent>(o)]; };
    for (const ir::node_id id : g_->ids()) {
      const auto& op = (*g_)[id].op;
      bool follows = zero_but_for[id] == selection;
      if (const auto* e = get_if<ir::einsum_node>(&op))
        follows |= std::ranges::any_of(e->args, is_0);
      if (const auto* m = get_if<ir::map_node>(&op)) follows |= keeps_zero(*m) && is_0(m->arg);
      if (const auto* j = get_if<ir::join_node>(&op))
        follows |= j->what == pass_kind::add && is_0(j->left) && is_0(j->right);
      found[static_cast<extent>(id)] = follows;
    }
    return found;
  }

  // The selection itself, and all of which it is made.
  std::vector<bool> makers_of(ir::node_id selection) const {
    std::vector<bool> found(g_->size(), false);
    found[static_cast<extent>(selection)] = true;
    for (extent i = static_cast<extent>(selection) + 1; i-- > 0;)
      if (found[i])
        for (const ir::node_id o : ir::operands((*g_)[static_cast<ir::node_id>(i)]))
          found[static_cast<extent>(o)] = true;
    return found;
  }

 private:
  static bool keeps_zero(const ir::map_node& m) {
    return m.f.own == nullptr &&
           (m.f.fn == pointwise::scale || m.f.fn == pointwise::negate || m.f.fn == pointwise::relu);
  }
  // The place of the selection's axis among those of a value, if there is one such axis.
  std::optional<extent> axis_in(ir::node_id id, ir::node_id selection) const {
    std::optional<extent> found;
    for (extent k = 0; k < g_->rank(id); ++k) {
      if (!g_->same((*g_)[id].axes[k], (*g_)[selection].axes.back())) continue;
      if (found) return {};
      found = k;
    }
    return found;
  }
  // True if the label of that axis in an operand of an einsum, or in its result, is that of
  // `other`.
  bool has_letter(const ir::einsum_node& e, extent operand, ir::node_id selection,
                  std::string_view other) const {
    const auto axis = axis_in(e.args[operand], selection);
    return axis && has(other, operand_labels(e.subscripts, operand)[*axis]);
  }

  std::optional<ir::node_id> find_zeros(ir::node_id id) const {
    const auto& op = (*g_)[id].op;
    if (holds_alternative<ir::select_node>(op)) return id;
    if (const auto* m = get_if<ir::map_node>(&op))
      return keeps_zero(*m) ? zero_but_for[m->arg] : std::nullopt;
    const auto* e = get_if<ir::einsum_node>(&op);
    for (extent i = 0; e != nullptr && i < e->args.size(); ++i) {
      const auto& by = zero_but_for[e->args[i]];
      if (by && has_letter(*e, i, *by, result_labels(e->subscripts))) return by;
    }
    return {};
  }

  // The selection that decides what a reader needs of an operand.
  // The reader itself may be read so, `by` a selection.
  std::optional<ir::node_id> sampling(ir::node_id reader, ir::node_id of,
                                      const std::optional<ir::node_id>& by) const {
    const auto& op = (*g_)[reader].op;
    if (const auto* e = get_if<ir::einsum_node>(&op)) {
      const auto at = static_cast<extent>(std::ranges::find(e->args, of) - e->args.begin());
      if (at == e->args.size()) return {};  // the sum without its mask
      for (extent i = 0; i < e->args.size(); ++i) {
        const auto& other = zero_but_for[e->args[i]];
        if (i != at && other && has_letter(*e, i, *other, operand_labels(e->subscripts, at)))
          return other;
      }
      return by && has_letter(*e, at, *by, result_labels(e->subscripts)) ? by : std::nullopt;
    }
    const auto* m = get_if<ir::map_node>(&op);
    const auto* j = get_if<ir::join_node>(&op);
    const bool is_by_element =
        (m != nullptr && is_finite_at_zero(*m)) || (j != nullptr && j->what == pass_kind::add);
    return by && is_by_element && axis_in(of, *by) ? by : std::nullopt;
  }
  // What is not there counts as 0, which must not become infinite.
  static bool is_finite_at_zero(const ir::map_node& m) {
    return m.f.own == nullptr && m.f.fn != pointwise::inverse &&
           m.f.fn != pointwise::inverse_sqrt && m.f.fn != pointwise::log;
  }

  const ir::graph* g_;
  ir::node_list roots_;
};

}  // namespace fmoe::detail
