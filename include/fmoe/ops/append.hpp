// SPDX-License-Identifier: MIT
// Append: a 1 after the last entry of each row. [..., n] -> [..., n + 1].
#pragma once

#include <span>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct append_step {
  std::string text;
  view a, c;
  extent rows = 0, columns = 0;  // rows for each token, as they come

  const char* name() const { return "append 1"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.write(c);
  }
  double flops(double tokens) const { return 4 * tokens * static_cast<double>(rows * columns); }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct append_op {
  const char* name() const { return "append"; }

  void interpret(auto& in, const auto& o) const {
    const extent n = in.shape(o.in[0].value).back();
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent) {
      for (extent k = 0; k < y.size(); ++k) {
        const extent row = k / (n + 1), column = k % (n + 1);
        y[k] = column == n ? 1 : x[row * n + column];
      }
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& out = to.value_of(o.out);
    steps.push_back(plan::append_step{.text = to.text(o),
                                      .a = to.whole(o.in[0].value),
                                      .c = to.whole(o.out.value),
                                      .rows = out.rows(),
                                      .columns = out.shape.back() - 1});
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct append_node {
  node_id arg;
  bool operator==(const append_node&) const = default;

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return "append 1"; }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes = graph[arg].axes;
    axes.back() = graph.total_axis({axes.back()}, 1);
    return axes;
  }
  auto token_axis(auto& tokens) const { return tokens.across(arg); }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    const auto in = to.rows(arg, names),
               out = to.program().make(planner::append_op{}, {in}, in.labels);
    ++to.program()[out.value].shape.back();
    return to.place(out, names);
  }

  void pull(auto& to, node_id, node_id c) const {
    if (to.needs(arg)) to.give(arg, to.g.slice(c, to.g.rank(c) - 1, 0, to.g.shape(arg).back()));
  }

  void list_ways(auto& ways) const { ways.add_rows(); }
};

}  // namespace fmoe::ir
