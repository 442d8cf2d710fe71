// SPDX-License-Identifier: MIT
// Join: two operands, element by element: a sum, a quotient, the greater or the lesser one, or one
// of them where the other is above 0 or below it. A product is an einsum. The right operand may
// have fewer axes, which are the last ones of the left one; it is repeated along the others.
#pragma once

#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/pointwise.hpp>

namespace fmoe::ir {

struct join_node {
  pass_kind what;  // any kind but map and multiply
  node_id left, right;
  bool operator==(const join_node&) const = default;

  static void each_operand(auto& self, const auto& f) {
    f(self.left);
    f(self.right);
  }
  const char* name() const { return name_of(what); }

  // Operands that may change places do so, so that the left one has no fewer axes.
  vector<axis_id> axes(auto& graph) {
    if (is_symmetric(what) && graph.rank(left) < graph.rank(right)) std::swap(left, right);
    graph.align(name(), left, right);
    return graph[left].axes;
  }

  auto token_axis(auto& tokens) const {
    const extent lead = tokens.rank(left) - tokens.rank(right);
    const auto a = tokens.at(left), b = tokens.at(right);
    if (!a) return b ? tokens.reject() : a;
    if (b) return *a == *b + lead ? a : tokens.reject();
    // A constant cannot be indexed by the token.
    return *a < lead ? a : tokens.reject();
  }

  auto lower(auto& to) const {
    const extent lead = to.graph().rank(left) - to.graph().rank(right);
    const axis_labels names = to.letters(left);
    return to.combine(what, to.named(left, names), to.named(right, names.substr(lead)), names);
  }

  // c where x > y, and half of it where they are equal.
  static node_id where_greater(auto& g, node_id c, node_id difference) {
    const node_id less = g.map(pointwise::negate, 0, difference);
    const node_id equal = g.drop(g.drop(c, difference), less);
    return g.add(keep(g, c, difference), scaled(g, equal, 0.5));
  }
  // A maximum of two equal numbers gives each one half.
  void pull(auto& to, node_id y, node_id c) const {
    auto& g = to.g;
    const bool needs_left = to.needs(left), needs_right = to.needs(right);
    const auto give_right = [&](node_id part) {  // summed along the axes that the operand lacks
      const std::string l = letters(g, part), own = l.substr(l.size() - g.rank(right));
      to.give(right, own == l ? part : g.einsum(l + "->" + own, {part}));
    };
    const auto difference = [&] {  // of the greater and the other one
      const node_id d = minus(g, left, right);
      return what == pass_kind::max ? d : g.map(pointwise::negate, 0, d);
    };
    switch (what) {
      case pass_kind::add:
        if (needs_left) to.give(left, c);
        if (needs_right) give_right(c);
        return;
      case pass_kind::divide:
        if (needs_left) to.give(left, g.divide(c, right));
        if (needs_right) give_right(g.map(pointwise::negate, 0, g.divide(times(g, c, y), right)));
        return;
      case pass_kind::max:
      case pass_kind::min:
        if (needs_left) to.give(left, where_greater(g, c, difference()));
        if (needs_right) give_right(where_greater(g, c, g.map(pointwise::negate, 0, difference())));
        return;
      case pass_kind::keep: return to.give(left, keep(g, c, right));
      case pass_kind::drop: return to.give(left, g.drop(c, right));
      // The bound is held constant.
      case pass_kind::above: return to.give(left, keep(g, c, g.map(pointwise::abs, 0, y)));
      case pass_kind::map:
      case pass_kind::multiply: return;  // nodes of other kinds
    }
  }

  void list_ways(auto& ways) const {
    const bool adds = what == pass_kind::add && !ways.is_constant(left) && !ways.is_constant(right),
               scales = (what == pass_kind::keep || what == pass_kind::drop ||
                         what == pass_kind::divide) &&
                        ways.is_sum(left) && ways.is_constant(right);
    ways.add_rows(adds || scales);
    ways.add_along_label();
    if (adds) ways.add_partial_of({0, 1});
    if (scales) ways.add_partial_of({0});
  }
};

}  // namespace fmoe::ir
