// SPDX-License-Identifier: MIT
// Slice: some neighbours along an axis. Gradients are made of it, and layers whose parts have one
// weight.
#pragma once

#include <span>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/checked.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::planner {

// The result may lack the axis if it is one entry; its other axes are in any order then.
struct slice_op {
  extent first = 0;
  extent axis = 0;  // of the operand's labels

  const char* name() const { return "slice"; }

  void interpret(auto& in, const auto& o) const {
    const auto &from = in.shape(o.in[0].value), &to = in.shape(o.out.value);
    const bool is_entry = to.size() < from.size();
    const extent inner = element_count(std::span(from).subspan(axis + 1)),
                 length = from[axis] * inner, count = is_entry ? 0 : to[axis] * inner;
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent i) {
      if (is_entry) return in.sum_entry(o, i, o.in[0].labels[axis], first, y.data());
      for (extent k = 0; k < y.size(); ++k)
        y[k] = x[k / count * length + first * inner + k % count];
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    auto s = to.reduction(o, o.in[0]);
    s.a.offset = first * to.program().stride(o.in[0], o.in[0].labels[axis]);
    steps.push_back(std::move(s));
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct slice_node {
  node_id arg;
  extent axis, first, count;
  bool operator==(const slice_node&) const = default;
  void add_to_hash(const auto& add) const { add(first); }

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return "slice"; }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes = graph[arg].axes;
    axes[axis] = graph.new_axis(count);
    return axes;
  }
  auto token_axis(auto& tokens) const {
    const auto token = tokens.at(arg);
    return token == axis ? tokens.reject() : token;
  }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    const auto in = to.named(arg, names);
    const extent along = in.labels.find(names[axis]);
    const auto out = to.program().make(planner::slice_op{first, along}, {in}, in.labels);
    to.program()[out.value].shape[along] = count;
    return to.place(out, names);
  }

  // Zeros before and behind the part. They have the token axis of the operand.
  void pull(auto& to, node_id, node_id c) const {
    auto& g = to.g;
    if (!to.needs(arg)) return;
    const auto zeros = [&](extent from, extent length) {
      const node_id part = g.slice(arg, axis, from, length);
      return g.map(pointwise::at_most, 0, g.map(pointwise::at_least, 0, part));
    };
    const extent end = first + count, whole = g.shape(arg)[axis];
    vector<node_id> parts;
    if (first > 0) parts.push_back(zeros(0, first));
    parts.push_back(c);
    if (end < whole) parts.push_back(zeros(end, whole - end));
    to.give(arg, parts.size() == 1 ? c : g.concat(std::move(parts), axis));
  }

  void list_ways(auto& ways) const {
    ways.add_rows(true);
    ways.add_along_label(axis);
  }
};

}  // namespace fmoe::ir
