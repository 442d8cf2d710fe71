// SPDX-License-Identifier: MIT
// How a graph is built and checked: what graph.hpp declares.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/base/error.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

FMOE_INLINE graph::graph() = default;
FMOE_INLINE graph::graph(const graph&) = default;
FMOE_INLINE graph::graph(graph&&) noexcept = default;
FMOE_INLINE graph& graph::operator=(const graph&) = default;
FMOE_INLINE graph& graph::operator=(graph&&) noexcept = default;
FMOE_INLINE graph::~graph() = default;

// Returns the argument that has an axis, and its number there, as a message names them.
FMOE_INLINE std::string graph::argument_with(axis_id axis) const {
  for (const node& n : nodes_) {
    const auto* l = get_if<leaf_node>(&n.op);
    if (l == nullptr || l->argument < 0) continue;
    for (extent i = 0; i < n.axes.size(); ++i)
      if (same(n.axes[i], axis))
        return "axis " + std::to_string(i) + " of argument " + std::to_string(l->argument);
  }
  return "an axis";
}

FMOE_INLINE vector<extent> graph::shape(node_id id) const {
  vector<extent> s;
  for (const axis_id a : (*this)[id].axes) {
    s.push_back(extent_of(a));
    if (s.back() == all)
      fail<shape_error>("[compile] nothing in the layer fixes the extent of ", argument_with(a),
                        ": say it with fmoe::sized");
  }
  return s;
}

FMOE_INLINE graph graph::without_nodes() const {
  graph g;
  g.totals_ = totals_;
  g.parents_ = parents_;
  g.extents_ = extents_;
  return g;
}

FMOE_INLINE std::optional<node_id> graph::find(const node_kind& op) const {
  const auto is_it = [&](extent k) { return nodes_[static_cast<node_id>(k)].op == op; };
  const auto k = nodes_by_hash_.find(hash_of(op), is_it);
  return k ? std::optional(static_cast<node_id>(*k)) : std::nullopt;
}

// Of the kind, the operands, and what else tells many operations with one operand apart.
FMOE_INLINE extent graph::hash_of(const node_kind& op) {
  extent hash = op.index();
  const auto add = [&](extent x) { hash = mixed(hash, x); };
  visit(
      [&](const auto& kind) {
        kind.each_operand(kind, [&](node_id operand) { add(static_cast<extent>(operand)); });
        if constexpr (requires { kind.add_to_hash(add); }) kind.add_to_hash(add);
      },
      op);
  return hash;
}

FMOE_INLINE void graph::find_inputs(const node_list& results) {
  const vector<axis_id>& result = nodes_[results[0]].axes;
  if (result.empty()) return;
  bool has_inputs = false, some_has_rows = false;
  vector<leaf_node*> candidates;
  for (node& n : nodes_) {
    auto* const l = get_if<leaf_node>(&n.op);
    if (l == nullptr) continue;
    if (l->argument >= 0) return;
    const bool has_rows = !n.axes.empty() && same(n.axes[0], result[0]);
    has_inputs |= !l->parameter;
    some_has_rows |= !l->parameter && has_rows;
    if (l->parameter && has_rows) candidates.push_back(l);
  }
  if (has_inputs && !some_has_rows) return;
  for (leaf_node* const l : candidates) l->parameter = false;
}

FMOE_INLINE node_id graph::append(node n) { return put(std::move(n)); }

FMOE_INLINE node_id graph::again(node n, std::span<const node_id> operands) {
  extent next = 0;
  each_operand(n, [&](node_id& arg) { arg = operands[next++]; });
  return visit([&](const auto& op) { return make(op); }, n.op);
}

FMOE_INLINE node_id graph::leaf(leaf_node n) { return make(std::move(n)); }

FMOE_INLINE bool graph::fix(node_id id, extent axis, extent length) {
  return length == all || join((*this)[id].axes[axis], new_axis(length));
}

FMOE_INLINE void graph::fix_arguments() {
  for (const node_id id : ids()) {
    const auto* l = get_if<leaf_node>(&(*this)[id].op);
    if (l == nullptr || l->argument < 0) continue;
    expects<shape_error>(fix(id, 0, argument_rows_), "[compile] an input has ",
                         extent_of((*this)[id].axes[0]), " rows, and calls have up to ",
                         argument_rows_);
  }
}

FMOE_INLINE node_id graph::einsum(std::string_view subscripts, vector<node_id> args) {
  return make(einsum_node{std::move(args), std::string(subscripts)});
}

FMOE_INLINE node_id graph::map(number_function f, node_id arg) {
  return make(map_node{std::move(f), arg});
}

FMOE_INLINE node_id graph::join(pass_kind what, node_id left, node_id right) {
  return make(join_node{what, left, right});
}

FMOE_INLINE node_id graph::divide(node_id left, node_id right) {
  if (rank(left) < rank(right)) return multiply(left, map(pointwise::inverse, 1, right));
  return join(pass_kind::divide, left, right);
}

FMOE_INLINE node_id graph::where(node_id condition, node_id a, node_id b) {
  return add(join(pass_kind::keep, a, condition), join(pass_kind::drop, b, condition));
}

FMOE_INLINE node_id graph::repeat(node_id arg, extent n) {
  auto ones = std::make_shared<storage>(n * sizeof(float));
  std::fill_n(static_cast<float*>(ones->data()), n, 1.f);
  const std::string labels = std::string("abcdefgh").substr(0, rank(arg));
  return einsum(labels + ",z->" + labels + 'z',
                {arg, leaf({std::move(ones), dtype::float32, {n}, true, -1, true})});
}

FMOE_INLINE node_id graph::multiply(node_id left, node_id right) {
  if (rank(left) < rank(right)) std::swap(left, right);
  align(name_of(pass_kind::multiply), left, right);
  const std::string labels = std::string("abcdefgh").substr(0, rank(left));
  return einsum(labels + ',' + labels.substr(rank(left) - rank(right)) + "->" + labels,
                {left, right});
}

FMOE_INLINE node_id graph::map_rows(row_function fn, double parameter, node_id arg,
                                    std::optional<node_id> bound) {
  return make(row_function_node{fn, parameter, arg, bound});
}

FMOE_INLINE node_id graph::norm(row_norm which, node_id arg) {
  return make(row_norm_node{which, arg});
}

FMOE_INLINE node_id graph::select(const selection_rule& rule, node_id arg,
                                  std::optional<node_id> ranked) {
  return make(select_node{rule, arg, ranked});
}

FMOE_INLINE node_id graph::kept(kept_part what, node_id arg) { return make(kept_node{what, arg}); }

FMOE_INLINE node_id graph::concat(vector<node_id> args, extent axis) {
  return make(concat_node{std::move(args), axis});
}

FMOE_INLINE node_id graph::slice(node_id arg, extent axis, extent first, extent count) {
  return make(slice_node{arg, axis, first, count});
}

FMOE_INLINE node_id graph::unpair(node_id arg, extent s) { return make(unpair_node{arg, s}); }

FMOE_INLINE bool graph::join_axes(node_id a, node_id b) {
  if (rank(a) != rank(b)) return false;
  for (extent k = 0; k < rank(a); ++k)
    if (!join((*this)[a].axes[k], (*this)[b].axes[k])) return false;
  return true;
}

FMOE_INLINE std::string graph::remark(node_id left, axis_id a, node_id right, axis_id b) const {
  const auto* x = get_if<leaf_node>(&(*this)[left].op);
  const auto* w = get_if<leaf_node>(&(*this)[right].op);
  if (x != nullptr && w != nullptr && x->parameter != w->parameter) {
    if (x->parameter) return remark(right, b, left, a);
    if (x->argument < 0 && same((*this)[left].axes.back(), a))
      return ": the input has rows of " + std::to_string(extent_of(a)) + " and the weight takes " +
             std::to_string(extent_of(b));
  }
  if (extent_of(a) != 1 && extent_of(b) != 1) return {};
  return ": an axis of extent 1 is not repeated; give it a letter of its own, which the result "
         "leaves out";
}

FMOE_INLINE axis_id graph::new_axis(extent e) {
  const axis_id a = extents_.add(e);
  parents_.push_back(a);
  return a;
}

FMOE_INLINE bool graph::join(axis_id a, axis_id b) {
  const axis_id i = root(a), j = root(b);
  const extent known = extents_[i] == all ? extents_[j] : extents_[i];
  if (extents_[j] != all && extents_[j] != known) return false;
  const bool tells = extents_[i] != extents_[j];
  extents_[i] = known;
  parents_[j] = i;
  if (tells) add_up();
  return true;
}

FMOE_INLINE axis_id graph::total_axis(vector<axis_id> parts, extent more) {
  const axis_id whole = new_axis(all);
  totals_.push_back({whole, std::move(parts), more});
  add_up();
  return whole;
}

FMOE_INLINE void graph::add_up() {
  for (bool changed = true; changed;) {
    changed = false;
    for (const total& t : totals_) {
      extent sum = t.more, missing = 0;
      axis_id last = t.whole;
      for (const axis_id p : t.parts) {
        if (const extent e = extent_of(p); e != all) {
          sum += e;
        } else {
          ++missing;
          last = p;
        }
      }
      const extent whole = extent_of(t.whole);
      if (missing == 0 && whole == all) {
        extents_[root(t.whole)] = sum;
        changed = true;
      } else if (whole != all && missing < 2) {
        expects<shape_error>(missing == 0 ? whole == sum : whole >= sum,
                             "[concat] the joined axis is ", whole, " long, and its parts are ",
                             sum, " long together");
        if (missing == 1) {
          extents_[root(last)] = whole - sum;
          changed = true;
        }
      }
    }
  }
}

FMOE_INLINE void graph::align(const char* op, node_id left, node_id right) {
  expects<shape_error>(rank(left) >= rank(right), "[", op, "] the left operand has ", rank(left),
                       " axes and the right one has more, ", rank(right));
  const extent lead = rank(left) - rank(right);
  for (extent k = 0; k < rank(right); ++k) {
    const axis_id a = (*this)[left].axes[lead + k], b = (*this)[right].axes[k];
    expects<shape_error>(join(a, b), "[", op, "] axis ", lead + k, " is ", extent_of(a), " and ",
                         extent_of(b), ": operands of ", rank(left), " and ", rank(right),
                         " axes align at their last axes");
  }
}

FMOE_INLINE node_id graph::put(node n) {
  if (const auto same = find(n.op)) return *same;
  nodes_by_hash_.add(hash_of(n.op));
  return nodes_.add(std::move(n));
}

}  // namespace fmoe::ir
