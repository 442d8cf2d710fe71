// SPDX-License-Identifier: MIT
// How a graph is built and checked: what graph.hpp declares.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/base/error.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::ir {

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

FMOE_INLINE std::optional<node_id> graph::find(const decltype(node::op)& op) const {
  const auto is_it = [&](extent k) { return nodes_[static_cast<node_id>(k)].op == op; };
  const auto k = nodes_by_hash_.find(hash_of(op), is_it);
  return k ? std::optional(static_cast<node_id>(*k)) : std::nullopt;
}

// Of the kind, the operands, and what else tells many operations with one operand apart. That a
// leaf is a parameter is not part of it, because find_inputs changes that.
FMOE_INLINE extent graph::hash_of(const decltype(node::op)& op) {
  extent hash = op.index();
  const auto add = [&](extent x) { hash = mixed(hash, x); };
  visit(
      [&]<class Kind>(const Kind& kind) {
        each_operand(kind, [&](node_id operand) { add(static_cast<extent>(operand)); });
        if constexpr (std::is_same_v<Kind, leaf_node>) {
          add(static_cast<extent>(kind.argument));
          for (const extent e : kind.shape) add(e);
          if (kind.data != nullptr && !kind.copied) add(hash_of(kind.data->data()));
        } else if constexpr (std::is_same_v<Kind, map_node>) {
          add(static_cast<extent>(kind.f.fn));
          add(std::hash<double>()(kind.f.parameter));
        } else if constexpr (std::is_same_v<Kind, slice_node>) {
          add(kind.first);
        }
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

FMOE_INLINE node_id graph::leaf(leaf_node n) {
  vector<axis_id> axes;
  for (const extent e : n.shape) axes.push_back(new_axis(e));
  return put({std::move(n), std::move(axes)});
}

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
  expects<value_error>(args.size() <= most_operands, "[einsum] there are ", args.size(),
                       " operands, above ", most_operands, ": multiply some of them first");
  std::array<std::optional<axis_id>, 128> seen{};  // the axis of each label
  std::array<extent, 128> first{};                 // the first operand with this label
  for (extent i = 0; i < args.size(); ++i) {
    const auto labels = operand_labels(subscripts, i);
    for (extent k = 0; k < labels.size(); ++k) {
      auto& known = seen[static_cast<unsigned char>(labels[k])];
      const axis_id here = (*this)[args[i]].axes[k];
      if (!known) {
        known = here;
        first[static_cast<unsigned char>(labels[k])] = i;
      }
      const extent other = first[static_cast<unsigned char>(labels[k])];
      if (!join(*known, here))
        fail<shape_error>("[einsum] '", labels[k], "' is ", extent_of(*known), " in operand ",
                          other, " and ", extent_of(here), " in operand ", i, " of \"", subscripts,
                          '"', remark(args[other], *known, args[i], here));
    }
  }
  vector<axis_id> axes;
  for (const char c : result_labels(subscripts))
    axes.push_back(*seen[static_cast<unsigned char>(c)]);
  return put({einsum_node{std::move(args), std::string(subscripts)}, std::move(axes)});
}

FMOE_INLINE node_id graph::map(number_function f, node_id arg) {
  return put({map_node{std::move(f), arg}, (*this)[arg].axes});
}

FMOE_INLINE node_id graph::join(pass_kind what, node_id left, node_id right) {
  if (is_symmetric(what) && rank(left) < rank(right)) std::swap(left, right);
  align(name_of(what), left, right);
  return put({join_node{what, left, right}, (*this)[left].axes});
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

FMOE_INLINE node_id graph::best_groups(node_id arg, grouping groups, extent active) {
  const extent n = extent_of((*this)[arg].axes.back());
  expects<value_error>(groups.count >= 1 && groups.count <= most_groups && n % groups.count == 0,
                       "[best_groups] a row of ", n, " entries is not ", groups.count,
                       " groups of one length, at most ", most_groups);
  expects<value_error>(active >= 1 && active <= groups.count, "[best_groups] ", active,
                       " groups are wanted of ", groups.count);
  return put(
      {row_function_node{row_function::best_groups, static_cast<double>(active), arg, {}, groups},
       (*this)[arg].axes});
}

FMOE_INLINE node_id graph::map_rows(row_function fn, double parameter, node_id arg,
                                    std::optional<node_id> bound) {
  const vector<axis_id> axes = (*this)[arg].axes;
  if (fn == row_function::group_max) {
    const extent n = extent_of(axes.back());
    const bool divides = parameter >= 1 && parameter <= static_cast<double>(n) &&
                         n % static_cast<extent>(parameter) == 0;
    expects<value_error>(divides && parameter == std::floor(parameter), "[group_max] a row of ", n,
                         " entries is not ", parameter, " groups of one length");
  }
  if (bound) {
    const auto& rows = (*this)[*bound].axes;
    expects<shape_error>(rows.size() < axes.size(), "[", name_of(fn), "] the bound has ",
                         rows.size(), " axes and the scores ", axes.size());
    const extent lead = axes.size() - 1 - rows.size();
    for (extent k = 0; k < rows.size(); ++k)
      expects<shape_error>(join(axes[lead + k], rows[k]), "[", name_of(fn), "] axis ", lead + k,
                           " is ", extent_of(axes[lead + k]), " and the bound's is ",
                           extent_of(rows[k]));
  }
  return put({row_function_node{fn, parameter, arg, bound}, axes});
}

FMOE_INLINE node_id graph::norm(row_norm which, node_id arg) {
  vector<axis_id> axes = (*this)[arg].axes;
  axes.pop_back();
  return put({row_norm_node{which, arg}, std::move(axes)});
}

FMOE_INLINE node_id graph::select(const selection_rule& rule, node_id arg,
                                  std::optional<node_id> ranked) {
  if (ranked) align(name_of(rule.what), arg, *ranked);
  vector<axis_id> axes = (*this)[arg].axes;
  if (rule.what == selection_rule::kind::product_top_k) {
    const extent s = extent_of(axes.back()), lists = extent_of(axes[axes.size() - 2]);
    expects<shape_error>(lists == 2 && s != all,
                         "[product_top_k] the scores' last axes are two lists, not ", lists, " of ",
                         s);
    expects<value_error>(rule.each <= s, "[product_top_k] each list keeps ", rule.each,
                         " entries and has only ", s);
    expects<value_error>(s < extent{1} << 16, "[product_top_k] a list has ", s,
                         " entries, above 65,535");
    expects<value_error>(rule.keep <= rule.each * rule.each, "[product_top_k] K is ", rule.keep,
                         " and two lists of ", rule.each, " have fewer pairs");
    expects<value_error>(rule.weights != weighting::softmax_of_all,
                         "[product_top_k] softmax_of_all would need all pairs of two lists");
    axes.resize(axes.size() - 2);
    axes.push_back(new_axis(s * s));
  }
  if (rule.what == selection_rule::kind::entries) {
    axes.resize(axes.size() - 2);
    axes.push_back(new_axis(rule.each));
  }
  return put({select_node{rule, arg, ranked}, std::move(axes)});
}

FMOE_INLINE node_id graph::kept(kept_part what, node_id arg) {
  const auto* s = get_if<select_node>(&(*this)[arg].op);
  using enum selection_rule::kind;
  const bool is_fixed = s != nullptr && (s->rule.what == product_top_k ||
                                         (s->rule.what == top_k && s->rule.keep != all));
  expects<value_error>(is_fixed,
                       "[kept] takes a selection that keeps K entries of each row: top_k "
                       "or product_top_k, and not fmoe::all");
  vector<axis_id> axes = (*this)[arg].axes;
  axes.back() = new_axis(s->rule.keep);
  return put({kept_node{what, arg}, std::move(axes)});
}

FMOE_INLINE node_id graph::append_one(node_id arg) {
  vector<axis_id> axes = (*this)[arg].axes;
  axes.back() = total_axis({axes.back()}, 1);
  return put({append_node{arg}, std::move(axes)});
}

FMOE_INLINE node_id graph::all_except(pair_set left_out, extent rows, extent columns) {
  return put({mask_node{std::move(left_out), rows, columns}, {new_axis(rows), new_axis(columns)}});
}

FMOE_INLINE node_id graph::concat(vector<node_id> args, extent axis) {
  vector<axis_id> axes = (*this)[args[0]].axes, parts;
  for (const node_id a : args) {
    const auto& other = (*this)[a].axes;
    for (extent k = 0; k < axes.size(); ++k)
      if (k != axis)
        expects<shape_error>(join(axes[k], other[k]), "[concat] axis ", k, " is ",
                             extent_of(axes[k]), " and ", extent_of(other[k]),
                             ": operands may differ along axis ", axis, " only");
    parts.push_back(other[axis]);
  }
  axes[axis] = total_axis(std::move(parts), 0);
  return put({concat_node{std::move(args), axis}, std::move(axes)});
}

FMOE_INLINE node_id graph::slice(node_id arg, extent axis, extent first, extent count) {
  vector<axis_id> axes = (*this)[arg].axes;
  axes[axis] = new_axis(count);
  return put({slice_node{arg, axis, first, count}, std::move(axes)});
}

FMOE_INLINE node_id graph::unpair(node_id arg, extent s) {
  vector<axis_id> axes = (*this)[arg].axes;
  axes.back() = new_axis(2);
  axes.push_back(new_axis(s));
  return put({unpair_node{arg}, std::move(axes)});
}

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
