// SPDX-License-Identifier: MIT
// Unpair: numbers of pairs, [..., s^2], become sums for each member of a pair, [..., 2, s]: over
// the pairs e = i s + j with this i, then with this j. It is the reverse of the sums that
// product_top_k selects from, and only gradients have it.
#pragma once

#include <span>
#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct unpair_step {  // of the pairs that a selection keeps
  std::string text;
  view selection, c;
  extent rows = 0, keep = 0, list = 0;

  const char* name() const { return "unpair"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.write(c);
  }
  double flops(double tokens) const {
    return 8 * tokens * static_cast<double>(rows * (keep + list));
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct unpair_op {
  const char* name() const { return "unpair"; }

  void interpret(auto& in, const auto& o) const {
    const extent s = in.shape(o.out.value).back();
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent) {
      for (extent k = 0; k < y.size() / 2 * s; ++k) {
        double* const lists = y.data() + k / (s * s) * 2 * s;
        lists[k / s % s] += x[k];
        lists[s + k % s] += x[k];
      }
    });
  }

  // The two lists lie behind each other: of dense pairs each is a sum along one of their axes.
  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& a = o.in[0];
    const auto& pairs = to.value_of(a);
    const extent s = to.value_of(o.out).shape.back();
    if (pairs.selection) {
      steps.push_back(plan::unpair_step{.text = to.text(o),
                                        .selection = to.whole(a.value),
                                        .c = to.whole(o.out.value),
                                        .rows = pairs.rows(),
                                        .keep = pairs.keep,
                                        .list = s});
      return;
    }
    const plan::nest_axis first{s, s, 0, 1}, second{s, 1, 0, 1};
    for (const bool is_second : {false, true}) {
      auto sum = to.reduction(o, a);
      sum.c.offset = is_second ? s : 0;
      sum.out.resize(a.labels.size() - 1);
      sum.out.push_back(is_second ? second : first);
      sum.summed = {is_second ? first : second};
      sum.summed[0].c = 0;
      steps.push_back(std::move(sum));
    }
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct unpair_node {
  node_id arg;
  extent each;  // the length s of a list
  bool operator==(const unpair_node&) const = default;

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  const char* name() const { return "unpair"; }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes = graph[arg].axes;
    axes.back() = graph.new_axis(2);
    axes.push_back(graph.new_axis(each));
    return axes;
  }
  auto token_axis(auto& tokens) const { return tokens.across(arg); }

  // The pairs become the innermost axis; the letters of the two new axes are free ones.
  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    const auto in = to.rows(arg, names);
    axis_labels lists;
    for (char c = 'A'; lists.size() < 2; ++c)
      if (!has(names, c)) lists += c;
    const axis_labels lead = in.labels.substr(0, in.labels.size() - 1);
    auto out = to.program().make(planner::unpair_op{}, {in}, lead);
    auto& made = to.program()[out.value];
    made.shape.push_back(2);
    made.shape.push_back(each);
    out.labels += lists;
    made.names = to.program().operations.back().out.labels = out.labels;
    return to.place(out, names.substr(0, names.size() - 1) + lists);
  }

  // Each pair gets the sum of what its two members have: product_top_k of all pairs.
  void pull(auto& to, node_id, node_id c) const {
    if (!to.needs(arg)) return;
    using rule = selection_rule::kind;
    to.give(arg, to.g.select({.what = rule::product_top_k, .keep = each * each, .each = each}, c));
  }

  void list_ways(auto& ways) const { ways.add_rows(); }
};

}  // namespace fmoe::ir
