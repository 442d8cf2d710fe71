// SPDX-License-Identifier: MIT
// Lower: a graph becomes a program of operations on one or two operands.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/contract.hpp>
#include <fmoe/planner/expand.hpp>
#include <fmoe/planner/stages.hpp>

namespace fmoe::planner {

class lowering {
  static constexpr extent npos = axis_labels::npos;
  struct placed {  // the place of a node's elements
    value_id value;
    // For each axis of the node the axis of the value, npos for the token axis.
    vector<extent> memory;
  };

 public:
  // Throws value_error if the rows of a compiled layer depend on each other, or if K exceeds its
  // axis.
  lowering(expanded_graph g, const plan_options& options)
      : expanded_(std::move(g)),
        options_(options),
        readers_(graph_.size()) {
    const ir::node_list& results = expanded_.roots;
    const bool is_layer = has_arguments(graph_);
    const token_search search(graph_, results, is_layer);
    const auto axes = search.axes();
    expects<value_error>(axes || !is_layer,
                         "[compile] rows of the result depend on other rows of the arguments");
    has_tokens_ = program_.tokens = axes.has_value();
    program_.token_count = search.count();
    tokens_ = axes.value_or(token_axes(graph_.size()));
    for (const ir::node_id id : graph_.ids())
      ir::each_operand(graph_[id], [&](ir::node_id arg) { readers_[arg].push_back(id); });
    for (const ir::node_id id : graph_.ids()) {
      id_ = id;
      visit([&](const auto& n) { nodes_.push_back(lower(n)); }, graph_[id_].op);
    }
    auto taken = results.size() > 1 ? read_late(program_)
                                    : list_by<value_id, bool>(program_.values.size(), false);
    for (const ir::node_id r : results) finish(r, taken);
  }

  planner::program take() { return std::move(program_); }

  // What the rules of operations are made of.
  const ir::graph& graph() const { return graph_; }
  planner::program& program() { return program_; }
  bool has_tokens() const { return has_tokens_; }
  // Returns the extent of an axis of the node at hand.
  extent length_here(extent axis) const { return graph_.extent_of(graph_[id_].axes[axis]); }

  // Returns the value of a node, with one letter for each axis.
  use named(ir::node_id id, std::string_view letters) {
    const placed& p = of(id);
    use u{p.value, axis_labels(program_[p.value].shape.size(), '?')};
    for (extent i = 0; i < letters.size(); ++i)
      if (p.memory[i] != npos) u.labels[p.memory[i]] = letters[i];
    return u;
  }
  // Returns letters for the axes of a node: those of the operation that made its value and 't' for
  // the token, if these name all axes.
  axis_labels letters(ir::node_id id) {
    const placed& p = of(id);
    const axis_labels& made = program_[p.value].names;
    axis_labels names;
    for (const extent m : p.memory) {
      const bool named = m == npos || m < made.size();
      const char c = m == npos ? 't' : named ? made[m] : '?';
      if (!named || has(names, c)) return axis_labels("abcdefgh").substr(0, p.memory.size());
      names += c;
    }
    return names;
  }

  placed place(const use& u, std::string_view result) const {
    placed p{u.value, {}};
    for (const char c : result) p.memory.push_back(u.labels.find(c));
    return p;
  }

  // Only einsums read it.
  placed of_mask() const { return {value_id::none, {0, 1}}; }

  // Joins left and right, where the labels of right are the last of left's in some order.
  placed combine(pass_kind what, use left, use right, std::string_view result) {
    if (is_symmetric(what) && program_[right.value].scope > program_[left.value].scope &&
        left.labels.size() == right.labels.size())
      std::swap(left, right);
    const axis_labels trailing = left.labels.substr(left.labels.size() - right.labels.size());
    if (right.labels != trailing) {
      const axis_labels order =
          labels_where(left.labels, [&](char c) { return has(right.labels, c); });
      right = program_.make(reduce_op{}, {right}, order);
      if (order != trailing) {
        left = program_.make(reduce_op{}, {left}, labels_where(left.labels, [&](char c) {
                                                    return !has(order, c);
                                                  }) + order);
      }
    }
    const use out = program_.make(pointwise_op{}, {left}, left.labels);
    program_[out.value].parameter &= program_[right.value].parameter;
    program_[out.value].scope = std::max(program_[out.value].scope, program_[right.value].scope);
    program_.operations.back().passes = {{what, {}, right.value}};
    return place(out, result);
  }

  // Returns the value of a node with these axes innermost, in this order.
  use innermost(ir::node_id id, const axis_labels& names, const axis_labels& last) {
    const use in = named(id, names);
    if (in.labels.ends_with(last)) return in;
    const axis_labels lead = labels_where(in.labels, [&](char c) { return !has(last, c); });
    return program_.make(reduce_op{}, {in}, lead + last);
  }
  // Returns the value of a node with its last axis innermost.
  use rows(ir::node_id id, const axis_labels& names) {
    return innermost(id, names, axis_labels(1, names.back()));
  }
  // Returns the value of a node with its axes in the order that they have among these.
  use in_order_of(ir::node_id id, const axis_labels& names, const axis_labels& labels) {
    const use u = named(id, names);
    const axis_labels order = labels_where(labels, [&](char c) { return has(u.labels, c); });
    return u.labels == order ? u : program_.make(reduce_op{}, {u}, order);
  }
  // Copies a leaf, because a barrier reads only memory of the call.
  use made(const use& u) {
    return program_[u.value].leaf ? program_.make(reduce_op{}, {u}, u.labels) : u;
  }

 private:
  placed& of(ir::node_id id) {
    placed& p = nodes_[id];
    expects<value_error>(p.value != value_id::none, "[all_except] is an operand of einsum only");
    return p;
  }

  template <class Node>
  placed lower(const Node& n) {
    return n.lower(*this);
  }

  placed lower(const ir::leaf_node& l) {
    const bool is_row = !l.parameter && !has_tokens_;
    value v{graph_.shape(id_), is_row ? value_scope::token : value_scope::constant,
            program_.leaves.size(), l.parameter, l.argument >= 0};
    program_.leaves.push_back(l);
    vector<extent> memory;
    const token_axis token = tokens_[id_];
    for (extent i = 0, at = 0; i < v.shape.size(); ++i) memory.push_back(token == i ? npos : at++);
    if (token) {
      v.scope = value_scope::token;
      v.shape.erase(v.shape.begin() + static_cast<std::ptrdiff_t>(*token));
    }
    return {program_.add(std::move(v)), std::move(memory)};
  }

  placed lower(const ir::einsum_node& e) {
    const std::string_view letters = result_labels(e.subscripts);
    vector<use> in;
    char token = 0;
    einsum_mask mask;
    for (extent i = 0; i < e.args.size(); ++i) {
      const auto labels = operand_labels(e.subscripts, i);
      if (const auto* m = get_if<ir::mask_node>(&graph_[e.args[i]].op)) {
        mask = {m->left_out, axis_labels(labels)};
        continue;
      }
      in.push_back(named(e.args[i], labels));
      const auto& memory = of(e.args[i]).memory;
      for (extent k = 0; k < memory.size(); ++k)
        if (memory[k] == npos) token = labels[k];
    }
    axis_labels result(letters);
    result.erase(token);
    contraction c(program_, options_.on, options_.naive, token != 0 && !has(letters, token));
    if (mask) {
      const use unmasked = fresh(*e.unmasked, mask.orient(axis_labels(letters)));
      return place(c.masked(std::move(mask), std::move(in), unmasked, result), letters);
    }
    if (in.size() == 2) return place(c.pair(in[0], in[1], result, hint(id_), inner(id_)), letters);
    const use out = c.one(in[0], result);
    const bool is_ordered = out.labels == result || inner(id_);
    return place(is_ordered ? out : program_.make(reduce_op{}, {out}, result), letters);
  }

  // Returns the value of the node before this one, or a copy if something else may read it.
  use fresh(ir::node_id id, const axis_labels& letters) {
    const use u = named(id, letters);
    const bool is_made_last =
        !program_.operations.empty() && program_.operations.back().out.value == u.value;
    const bool is_result = std::ranges::count(expanded_.roots, id) != 0;
    const bool is_only_here = !is_result && readers_[id].size() == 1;
    if (is_made_last && is_only_here) return u;
    return program_.make(reduce_op{}, {u}, u.labels);
  }

  bool inner(ir::node_id id) const { return expanded_.inner[id]; }

  // Returns the order of a pair's axes that suits what reads it next, in the letters of this one:
  // that of the operand which it meets there, or that of the einsum's result if the operand is not
  // made yet.
  axis_labels hint(ir::node_id id) {
    if (!inner(id)) return result_of(id);
    const next_pair next = next_of(id);
    const bool is_made = nodes_.contains(next.partner);
    return is_made ? translated(id, next, named(next.partner, next.labels).labels) : result_of(id);
  }

  // Returns the labels of the whole einsum's result that a pair has, in its letters.
  axis_labels result_of(ir::node_id id) const {
    if (!inner(id)) return axis_labels(result_labels(einsum(id).subscripts));
    const next_pair next = next_of(id);
    return translated(id, next, result_of(next.reader));
  }

  struct next_pair {
    ir::node_id reader, partner;
    std::string_view here, labels;  // of the pair and of its partner, in the reader's letters
  };
  next_pair next_of(ir::node_id id) const {
    const ir::node_id reader = readers_[id][0];
    const ir::einsum_node& e = einsum(reader);
    const extent place = e.args[0] == id ? 0 : 1;
    return {reader, e.args[1 - place], operand_labels(e.subscripts, place),
            operand_labels(e.subscripts, 1 - place)};
  }
  axis_labels translated(ir::node_id id, const next_pair& next, const axis_labels& order) const {
    const std::string_view own = result_labels(einsum(id).subscripts);
    axis_labels letters;
    for (const char c : order)
      if (has(next.here, c)) letters += own[next.here.find(c)];
    return letters;
  }
  const ir::einsum_node& einsum(ir::node_id id) const {
    return get<ir::einsum_node>(graph_[id].op);
  }

  // Makes a result a new value with the graph's order of axes. It is made once for each call if it
  // has no token axis and the program has one. If there are several results, no operation reads one
  // after a barrier or after its pass over the tokens.
  void finish(ir::node_id result, list_by<value_id, bool>& taken) {
    const axis_labels names = letters(result);
    use u = named(result, names);
    axis_labels order;
    for (extent i = 0; i < names.size(); ++i)
      if (of(result).memory[i] != npos) order += names[i];
    const value& v = program_[u.value];
    const bool has_axis = order.size() < names.size() || !has_tokens_;
    const value_scope wanted = has_axis ? value_scope::token : value_scope::call;
    const bool fits = !v.leaf && v.scope == wanted && u.labels == order;
    if (!fits || std::exchange(taken[u.value], true)) {
      u = program_.make(reduce_op{}, {u}, order);
      program_[u.value].scope = wanted;
    }
    program_.results.push_back(u.value);
  }

  expanded_graph expanded_;
  const ir::graph& graph_ = expanded_.nodes;
  const plan_options& options_;
  bool has_tokens_ = false;
  token_axes tokens_;
  planner::program program_;
  list_by<ir::node_id, vector<ir::node_id>> readers_;
  list_by<ir::node_id, placed> nodes_;
  ir::node_id id_{};  // the node that is being lowered
};

}  // namespace fmoe::planner
