// SPDX-License-Identifier: MIT
// Concat: operands one behind the other along an axis, the only one in which they may differ.
#pragma once

#include <algorithm>
#include <span>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/checked.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::planner {

struct concat_op {
  extent axis = 0;  // of the result's labels

  const char* name() const { return "concat"; }

  void interpret(auto& in, const auto& o) const {
    const auto& whole = in.shape(o.out.value);
    const extent inner = element_count(std::span(whole).subspan(axis + 1));
    extent first = 0;
    for (const auto& u : o.in) {
      auto part = o;
      part.in = {u};
      const extent length = in.program().extent_of(u, o.out.labels[axis]);
      in.each_row(part, [&](std::span<const double> x, std::span<double> y, extent i) {
        vector<double> ordered(x.size());
        in.sum_row(part, i, ordered.data());
        for (extent k = 0; k < ordered.size(); ++k) {
          const extent outer = k / (length * inner), place = k / inner % length;
          y[(outer * whole[axis] + first + place) * inner + k % inner] = ordered[k];
        }
      });
      first += length;
    }
  }

  // A step for each operand, which may permute its axes.
  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    extent offset = 0;
    const char along = o.out.labels[axis];
    for (const auto& part : o.in) {
      const extent length = to.program().extent_of(part, along);
      auto s = to.reduction(o, part);
      for (extent k = 0; k < s.out.size(); ++k)
        s.out[k].length = to.program().extent_of(part, o.out.labels[k]);
      s.c.offset = offset * to.program().stride(o.out, along);
      offset += length;
      steps.push_back(std::move(s));
    }
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct concat_node {
  vector<node_id> args;
  extent axis;
  bool operator==(const concat_node&) const = default;

  static void each_operand(auto& self, const auto& f) {
    for (auto& arg : self.args) f(arg);
  }
  const char* name() const { return "concat"; }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes = graph[args[0]].axes, parts;
    for (const node_id a : args) {
      const vector<axis_id>& other = graph[a].axes;
      for (extent k = 0; k < axes.size(); ++k)
        if (k != axis)
          expects<shape_error>(graph.join(axes[k], other[k]), "[concat] axis ", k, " is ",
                               graph.extent_of(axes[k]), " and ", graph.extent_of(other[k]),
                               ": operands may differ along axis ", axis, " only");
      parts.push_back(other[axis]);
    }
    axes[axis] = graph.total_axis(std::move(parts), 0);
    return axes;
  }

  auto token_axis(auto& tokens) const {
    for (const node_id a : args)
      if (tokens.at(a) != tokens.at(args[0])) return tokens.reject();
    const auto token = tokens.at(args[0]);
    return token == axis ? tokens.reject() : token;
  }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(args[0]);
    vector in{to.named(args[0], names)};
    for (extent i = 1; i < args.size(); ++i) in.push_back(to.named(args[i], names));
    axis_labels order;
    for (const char c : names)
      if (has(in[0].labels, c)) order += c;
    const extent along = order.find(names[axis]);
    const auto out = to.program().make(planner::concat_op{along}, std::move(in), order);
    to.program()[out.value].shape[along] = to.length_here(axis);
    return to.place(out, names);
  }

  void pull(auto& to, node_id, node_id c) const {
    extent first = 0;
    for (const node_id part : args) {
      const extent count = to.g.shape(part)[axis];
      if (to.needs(part)) to.give(part, to.g.slice(c, axis, first, count));
      first += count;
    }
  }

  void list_ways(auto& ways) const {
    ways.add_rows(std::ranges::all_of(args, [&](node_id a) { return ways.is_sum(a); }));
    for (const node_id a : args)
      if (!ways.at(a).label) return;
    ways.add_along_label(axis);
  }
};

}  // namespace fmoe::ir
