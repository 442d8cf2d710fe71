// SPDX-License-Identifier: MIT
// Row norm: one number of each row, which is the last axis. [..., n] -> [...].
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct row_norm_step {
  std::string text;
  row_norm which{};
  view a, c;
  extent rows = 0, columns = 0;  // rows for each token

  const char* name() const { return name_of(which); }
  void list_accesses(auto& to) const {
    to.read(a);
    to.write(c);
  }
  double flops(double tokens) const { return 8 * tokens * static_cast<double>(rows * columns); }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct row_norm_op {
  row_norm which{};

  const char* name() const { return name_of(which); }

  double of(std::span<const double> x) const {
    double sum = 0, magnitudes = 0, squares = 0, most = 0;
    for (const double v : x) {
      sum += v;
      magnitudes += std::abs(v);
      squares += v * v;
      most = std::max(most, std::abs(v));
    }
    switch (which) {
      case row_norm::l1: return magnitudes;
      case row_norm::l2: return std::sqrt(squares);
      case row_norm::max: return most;
      case row_norm::mean: return sum / static_cast<double>(x.size());
    }
    return 0;
  }
  void interpret(auto& in, const auto& o) const {
    const extent n = in.shape(o.in[0].value).back();
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent) {
      for (extent r = 0; n != 0 && r < y.size(); ++r) y[r] = of(x.subspan(r * n, n));
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& in = to.value_of(o.in[0]);
    steps.push_back(plan::row_norm_step{.text = to.text(o),
                                        .which = which,
                                        .a = to.whole(o.in[0].value),
                                        .c = to.whole(o.out.value),
                                        .rows = in.rows(),
                                        .columns = in.shape.back()});
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct row_norm_node {
  row_norm which;
  node_id arg;
  bool operator==(const row_norm_node&) const = default;

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return name_of(which); }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes = graph[arg].axes;
    axes.pop_back();
    return axes;
  }
  auto token_axis(auto& tokens) const { return tokens.across(arg); }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    const auto in = to.rows(arg, names);
    const axis_labels lead = in.labels.substr(0, in.labels.size() - 1);
    return to.place(to.program().make(planner::row_norm_op{which}, {in}, lead),
                    names.substr(0, names.size() - 1));
  }

  node_id cotangent(auto& g, node_id y, node_id c) const {
    switch (which) {
      case row_norm::l1: return signed_by(g, along_row(g, c, arg), arg);
      case row_norm::l2: {  // a row of zeros has the cotangent 0
        constexpr double tiny = 1e-30;
        return by_row(g, arg, g.divide(c, g.map(pointwise::at_least, tiny, y)));
      }
      case row_norm::max: {  // the first of the greatest
        const node_id first = g.select({selection_rule::kind::top_k, 1, 0, weighting::one},
                                       g.map(pointwise::abs, 0, arg));
        return signed_by(g, by_row(g, first, c), arg);
      }
      case row_norm::mean: return along_row(g, scaled(g, c, 1 / row_length(g, arg)), arg);
    }
    return c;
  }
  void pull(auto& to, node_id y, node_id c) const {
    if (to.needs(arg)) to.give(arg, cotangent(to.g, y, c));
  }

  // A row that is cut is merged from a sum, or from the greatest number, of each part.
  void list_ways(auto& ways) const {
    ways.add_rows();
    if (!ways.has_label_last(arg)) ways.add_along_label();
    else ways.add_merge_to_whole();
  }
  void add_merge(auto& size) const {
    size.add_rows(which == row_norm::max ? size.top : size.sum, 2);
  }
};

}  // namespace fmoe::ir
