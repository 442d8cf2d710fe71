// SPDX-License-Identifier: MIT
// Kept: a number of each entry that a selection of K entries keeps, by ascending index: its value,
// or its index. [..., n] -> [..., K]. A row that keeps fewer ends with values of 0 and indices of
// -1.
#pragma once

#include <algorithm>
#include <span>
#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/select.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct kept_step {
  std::string text;
  kept_part what{};
  view selection, c;
  extent rows = 0, keep = 0;

  const char* name() const { return name_of(what); }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.write(c);
  }
  double flops(double tokens) const { return 8 * tokens * static_cast<double>(rows * keep); }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct kept_op {
  kept_part what{};

  const char* name() const { return name_of(what); }

  void interpret(auto& in, const auto& o) const {
    const bool values = what == kept_part::value;
    const extent n = in.shape(o.in[0].value).back(), keep = in.shape(o.out.value).back();
    in.each_row(o, [&](std::span<const double> x, std::span<double> y, extent) {
      for (extent r = 0; keep != 0 && r < y.size() / keep; ++r) {
        auto to = y.begin() + static_cast<std::ptrdiff_t>(r * keep);
        std::fill_n(to, keep, values ? 0. : -1.);
        for (extent k = 0; k < n; ++k)
          if (x[r * n + k] != 0) *to++ = values ? x[r * n + k] : static_cast<double>(k);
      }
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& out = to.value_of(o.out);
    steps.push_back(plan::kept_step{.text = to.text(o),
                                    .what = what,
                                    .selection = to.whole(o.in[0].value),
                                    .c = to.whole(o.out.value),
                                    .rows = out.rows(),
                                    .keep = out.shape.back()});
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct kept_node {
  kept_part what;
  node_id arg;  // a selection
  bool operator==(const kept_node&) const = default;

  static void each_operand(auto& self, const auto& f) { f(self.arg); }
  std::string name() const { return std::string("kept ") + name_of(what); }

  vector<axis_id> axes(auto& graph) const {
    const select_node* const s = get_if<select_node>(&graph[arg].op);
    using enum selection_rule::kind;
    const bool is_fixed = s != nullptr && (s->rule.what == product_top_k ||
                                           (s->rule.what == top_k && s->rule.keep != all));
    expects<value_error>(is_fixed,
                         "[kept] takes a selection that keeps K entries of each row: top_k "
                         "or product_top_k, and not fmoe::all");
    vector<axis_id> axes = graph[arg].axes;
    axes.back() = graph.new_axis(s->rule.keep);
    return axes;
  }
  auto token_axis(auto& tokens) const { return tokens.across(arg); }

  auto lower(auto& to) const {
    const axis_labels names = to.letters(arg);
    auto in = to.named(arg, names);
    if (!to.program()[in.value].selection) {  // of all entries, which are dense
      const extent n = to.program()[in.value].shape.back();
      in = to.program().make(planner::select_op{{selection_rule::kind::top_k, n}}, {in}, in.labels,
                             true, n);
      to.program()[in.value].expected = n;
    }
    const auto out = to.program().make(planner::kept_op{what}, {in}, in.labels);
    to.program()[out.value].shape.back() = to.program()[in.value].keep;
    return to.place(out, names);
  }

  // [..., K] -> [..., K, n]: 1 at the index of each kept entry, and 0 elsewhere.
  node_id places(auto& g) const {
    const node_id index = g.kept(kept_part::index, arg);
    const extent n = g.shape(arg).back();
    const node_id distance = g.add(
        g.repeat(index, n), constant(g, {n}, [](extent i) { return -static_cast<float>(i); }));
    const node_id nearness =
        g.map(pointwise::shift, 1, g.map(pointwise::negate, 0, g.map(pointwise::abs, 0, distance)));
    return g.map(pointwise::at_least, 0, nearness);
  }
  void pull(auto& to, node_id y, node_id c) const {
    if (what == kept_part::index || !to.needs(arg)) return;
    const std::string l = letters(to.g, y);
    to.give(arg,
            to.g.einsum(l + ',' + l + "z->" + letters_of_rows(to.g, y) + 'z', {c, places(to.g)}));
  }

  void list_ways(auto& ways) const { ways.add_rows(); }
};

}  // namespace fmoe::ir
