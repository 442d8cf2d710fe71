// SPDX-License-Identifier: MIT
// An expression as plain data: a list of nodes, in which arguments come before their users and
// equal nodes are merged. Every extent is checked while the graph is built. Extents of the
// arguments of a compiled layer may be unknown at first. Axes that must be equal are joined, and an
// extent that one of them gets holds for all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmoe/base/counted.hpp>
#include <fmoe/base/list_by.hpp>
#include <fmoe/base/numbers_by_hash.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/node.hpp>

namespace fmoe::ir {

class graph {
 public:
  // An einsum's operands are the bits of a set while the planner searches for their order.
  static constexpr extent most_operands = 64;

  // Behind the wall, because a user's unit would make these functions of all kinds of nodes.
  graph();
  graph(const graph&);
  graph(graph&&) noexcept;
  graph& operator=(const graph&);
  graph& operator=(graph&&) noexcept;
  ~graph();

  extent size() const { return nodes_.size(); }
  id_range<node_id> ids() const { return nodes_.ids(); }
  const node& operator[](node_id id) const { return nodes_[id]; }
  extent rank(node_id id) const { return (*this)[id].axes.size(); }

  // Returns `all` if nothing has fixed the extent yet.
  extent extent_of(axis_id a) const { return extents_[root(a)]; }
  bool same(axis_id a, axis_id b) const { return root(a) == root(b); }

  // Throws shape_error if nothing tells the extent of an axis of an argument.
  vector<extent> shape(node_id id) const;

  // Returns a graph with the axes of this one and no nodes.
  graph without_nodes() const;

  // Returns the node with this operation, if there is one.
  std::optional<node_id> find(const node_kind& op) const;

  // Makes the inputs of an expression known where they are parameters: leaves that have a row for
  // each row of the first result. Where there are other inputs, one of these has such rows, too.
  // A compiled layer has arguments instead.
  void find_inputs(const node_list& results);

  // Adds a node whose operands and axes belong to this graph.
  node_id append(node n);

  // Adds the operation of a node for these operands of this graph. Throws what its rule of shapes
  // throws.
  node_id again(node n, std::span<const node_id> operands);

  // Returns the node that make() adds for this object, which is called once; the graph keeps the
  // object.
  template <class Make>
  node_id once(const counted& object, Make make) {
    const extent hash = hash_of(&object);
    const auto is_it = [&](extent k) { return made_[k].first.get() == &object; };
    if (const auto known = made_by_hash_.find(hash, is_it)) return made_[*known].second;
    const node_id id = make();
    made_.emplace_back(counted_ptr(&object), id);
    made_by_hash_.add(hash);
    return id;
  }

  // Adds the node of an operation, whose operands belong to this graph; its rule makes its axes.
  // Nodes that the rules of other operations make have functions of their own below.
  template <class Operation>
  node_id make(Operation op) {
    vector<axis_id> axes = op.axes(*this);
    return put({std::move(op), std::move(axes)});
  }

  node_id leaf(leaf_node n);

  // Fixes the extent of an axis, unless `length` is `all`. Returns false if it has another one.
  bool fix(node_id id, extent axis, extent length);

  // Says how many rows arguments have that do not know it themselves, for fix_arguments.
  void set_argument_rows(extent rows) { argument_rows_ = rows; }
  // Fixes the rows of all arguments so far. Throws shape_error for one that has other rows.
  void fix_arguments();

  node_id einsum(std::string_view subscripts, vector<node_id> args);
  node_id map(number_function f, node_id arg);
  node_id map(pointwise fn, double parameter, node_id arg) { return map({fn, parameter}, arg); }

  // Joins two operands element by element. The one with fewer axes is repeated along the leading
  // axes of the other; unless they may change places, that is the right one.
  node_id join(pass_kind what, node_id left, node_id right);
  node_id add(node_id left, node_id right) { return join(pass_kind::add, left, right); }
  node_id max(node_id left, node_id right) { return join(pass_kind::max, left, right); }
  node_id min(node_id left, node_id right) { return join(pass_kind::min, left, right); }

  // A divisor with more axes is inverted first.
  node_id divide(node_id left, node_id right);

  // a where the condition is above 0, else b.
  node_id where(node_id condition, node_id a, node_id b);
  // 0 where the condition is above 0, else arg.
  node_id drop(node_id arg, node_id condition) { return join(pass_kind::drop, arg, condition); }

  // [...] -> [..., n]: each number n times, along a new last axis.
  node_id repeat(node_id arg, extent n);

  // The Hadamard product, with the same broadcasting as add.
  node_id multiply(node_id left, node_id right);

  // A function along the last axis. The axes of `bound` are those before the last one, or the last
  // of these.
  node_id map_rows(row_function fn, double parameter, node_id arg,
                   std::optional<node_id> bound = {});

  // One number of each row, which is the last axis: the result does not have it.
  node_id norm(row_norm which, node_id arg);

  // A selection along the last axis. product_top_k selects along the last two axes, [..., 2, s],
  // and its result is [..., s^2]; entries makes [..., each] of [..., 2, K].
  node_id select(const selection_rule& rule, node_id arg, std::optional<node_id> ranked = {});

  // A number of each entry that a selection keeps: [..., n] -> [..., K]. A row that keeps fewer
  // than K entries ends with values of 0 and indices of -1.
  node_id kept(kept_part what, node_id arg);

  node_id concat(vector<node_id> args, extent axis);

  // `count` neighbours along an axis, from `first` on.
  node_id slice(node_id arg, extent axis, extent first, extent count);

  // [..., s^2] -> [..., 2, s]: the reverse of the sums that product_top_k selects from.
  node_id unpair(node_id arg, extent s);

  // Makes the axes of two nodes the same. Returns false if they differ in number or extent.
  bool join_axes(node_id a, node_id b);

  // What rules of shapes are made of.
  axis_id new_axis(extent e);
  // Returns false if both extents are known and differ.
  bool join(axis_id a, axis_id b);
  // Returns an axis whose length is that of `parts` together plus `more`. Its length becomes known
  // as soon as those of the parts are; if all but one of these lengths are known, so is the last
  // one.
  axis_id total_axis(vector<axis_id> parts, extent more);
  // Joins the axes of the right operand with the last ones of the left. Throws shape_error.
  void align(const char* op, node_id left, node_id right);
  // What two unequal axes tell: that one is of the rows of an input and the other a weight's, or
  // what to write where an axis has extent 1.
  std::string remark(node_id left, axis_id a, node_id right, axis_id b) const;

 private:
  axis_id root(axis_id a) const {
    while (parents_[a] != a) a = parents_[a];
    return a;
  }

  std::string argument_with(axis_id axis) const;

  void add_up();
  node_id put(node n);

  struct total {
    axis_id whole;
    vector<axis_id> parts;
    extent more;
  };

  static extent hash_of(const void* object) {
    return mixed(0, reinterpret_cast<std::uintptr_t>(object));
  }
  static extent hash_of(const node_kind& op);

  list_by<node_id, node> nodes_;
  numbers_by_hash nodes_by_hash_;
  vector<std::pair<counted_ptr<counted>, node_id>> made_;  // by `once`
  numbers_by_hash made_by_hash_;
  vector<total> totals_;
  list_by<axis_id, axis_id> parents_;
  list_by<axis_id, extent> extents_;
  extent argument_rows_ = all;
};

}  // namespace fmoe::ir

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/ir/graph-inl.hpp>
#endif
