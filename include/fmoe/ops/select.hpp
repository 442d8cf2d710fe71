// SPDX-License-Identifier: MIT
// Select: some entries of each row, which is the last axis, with a weighting of what is kept; the
// others are 0. [..., n] -> [..., n]. product_top_k selects among the sums of two lists,
// [..., 2, s] -> [..., s^2], and entries are listed, [..., 2, K] -> [..., each].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/error.hpp>
#include <fmoe/base/variant.hpp>
#include <fmoe/ops/ids.hpp>
#include <fmoe/ops/map.hpp>

namespace fmoe::plan {

struct select_step {  // a loop feeds it chunk by chunk, and it selects at the last one
  std::string text;
  selection_rule rule{};
  view a, ranked, selection;               // ranked may not exist
  extent rows = 0, columns = 0, keep = 0;  // columns of the result
  // The length of each of the two lists that a row is made of. product_top_k has room for a state
  // of each after the states of the rows.
  extent list = 0;

  const char* name() const { return name_of(rule.what); }
  void list_accesses(auto& to) const {
    to.read(a);
    if (ranked.exists()) to.read(ranked);
    to.write(selection);
  }
  void describe(auto& text_of, const auto&) const {
    if (rule.what == selection_rule::kind::top_p) text_of << "  " << rule.mass;
    else text_of << "  " << keep;
    text_of << " of " << columns;
    if (rule.what == selection_rule::kind::product_top_k)
      text_of << ", the sums of " << rule.each << " of " << list << " twice";
  }
  // Beside the scan of its numbers, each selection looks for bounds, one step after the other:
  // about as long as so many operations. The best sums of two lists are three selections.
  double flops(double tokens) const {
    constexpr double bounds = 60e3, sums = 100e3, scanned = 20;
    const double made = tokens * static_cast<double>(rows);
    if (rule.what == selection_rule::kind::entries)
      return tokens * static_cast<double>(rows * list) * scanned;
    const double of_list = bounds + scanned * static_cast<double>(list != 0 ? list : columns);
    return made * (list != 0 ? 3 * of_list + sums : of_list);
  }
};

struct expert_choice_step {  // on all tokens at once
  std::string text;
  selection_rule rule{};
  view scores, ranked, selection;
  extent experts = 0;
  // The memory of the call has a number for each token after this many elements of each token.
  extent scratch = 0;

  const char* name() const { return name_of(rule.what); }
  void list_accesses(auto& to) const {
    to.read(scores);
    to.read(ranked);
    to.write(selection);
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

// A second operand is what entries are ranked by, if not by themselves.
struct select_op {
  selection_rule rule{};

  const char* name() const { return name_of(rule.what); }

  void interpret(auto& in, const auto& o) const { in.select(rule, o); }

  void emit(auto& to, const auto& o, const auto* loop, auto& steps) const {
    const auto& out = to.value_of(o.out);
    if (rule.what == selection_rule::kind::expert_choice)
      return steps.push_back(plan::expert_choice_step{.text = to.text(o),
                                                      .rule = rule,
                                                      .scores = to.whole(o.in[0].value),
                                                      .ranked = to.whole(o.in[1].value),
                                                      .selection = to.whole(o.out.value),
                                                      .experts = out.keep,
                                                      .scratch = to.room_for_token_numbers()});
    const bool has_lists = takes_two_rows(rule.what);
    steps.push_back(
        plan::select_step{.text = to.text(o),
                          .rule = rule,
                          .a = to.in_loop(o.in[0].value, loop),
                          .ranked = o.in.size() > 1 ? to.whole(o.in[1].value) : plan::view{},
                          .selection = to.whole(o.out.value),
                          .rows = out.rows(),
                          .columns = out.shape.back(),
                          .keep = out.keep,
                          .list = has_lists ? to.value_of(o.in[0]).shape.back() : 0});
  }
};

}  // namespace fmoe::planner

namespace fmoe::ir {

struct select_node {
  selection_rule rule;
  node_id arg;
  std::optional<node_id> ranked;  // what entries are ranked by, if not by themselves
  bool operator==(const select_node&) const = default;

  static void each_operand(auto& self, const auto& f) {
    f(self.arg);
    if (self.ranked) f(*self.ranked);
  }
  const char* name() const { return name_of(rule.what); }
  bool is(selection_rule::kind what) const { return rule.what == what; }

  vector<axis_id> axes(auto& graph) const {
    if (ranked) graph.align(name(), arg, *ranked);
    vector<axis_id> axes = graph[arg].axes;
    if (!takes_two_rows(rule.what)) return axes;
    const extent s = graph.extent_of(axes.back()), lists = graph.extent_of(axes[axes.size() - 2]);
    if (is(selection_rule::kind::product_top_k)) check_lists(lists, s);
    axes.resize(axes.size() - 2);
    axes.push_back(graph.new_axis(is(selection_rule::kind::entries) ? rule.each : s * s));
    return axes;
  }
  void check_lists(extent lists, extent s) const {
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
  }

  auto token_axis(auto& tokens) const {
    const bool lists = takes_two_rows(rule.what) && tokens.at(arg) == tokens.rank(arg) - 2;
    const auto a = lists ? tokens.reject() : tokens.across(arg);
    if (is(selection_rule::kind::expert_choice) && !a) return tokens.reject();
    return ranked && tokens.at(*ranked) != a ? tokens.reject() : a;
  }

  auto lower(auto& to) const {
    auto& program = to.program();
    const axis_labels names = to.letters(arg);
    if (takes_two_rows(rule.what)) return lower_two_rows(to, names);
    if (is(selection_rule::kind::expert_choice)) return lower_expert_choice(to, names);
    const auto in = to.rows(arg, names);
    const extent n = program[in.value].shape.back();
    extent keep = n;
    if (is(selection_rule::kind::top_k)) {
      keep = rule.keep == all ? n : rule.keep;
      expects<value_error>(keep <= n, "[top_k] K is ", keep, " and the scores' last axis has ", n,
                           ": fmoe::all keeps every score");
      if (keeps_all(rule, n)) return to.place(in, names);
    } else if (is(selection_rule::kind::top_p)) {
      expects<value_error>(rule.mass >= 0 && rule.mass <= 1, "[top_p] the mass is ", rule.mass,
                           ", not within 0 and 1");
    }
    vector operands{in};
    if (ranked) operands.push_back(to.in_order_of(*ranked, names, in.labels));
    const auto out =
        program.make(planner::select_op{rule}, std::move(operands), in.labels, true, keep);
    program[out.value].expected = expected_of(rule, n);
    return to.place(out, names);
  }
  auto lower_expert_choice(auto& to, const axis_labels& names) const {
    expects<value_error>(to.has_tokens(),
                         "[expert_choice] the scores' first axis does not count tokens");
    auto& program = to.program();
    const auto scores = to.made(to.rows(arg, names)), by = to.made(to.rows(*ranked, names));
    const extent n = program[scores.value].shape.back();
    const auto out = program.make(planner::select_op{rule}, {scores, by}, scores.labels, true, n);
    program[out.value].expected = expected_of(rule, n);
    return to.place(out, names);
  }
  // The axes of the two lists become the innermost ones; the second one names their pairs.
  auto lower_two_rows(auto& to, const axis_labels& names) const {
    auto& program = to.program();
    const axis_labels lists = names.substr(names.size() - 2);
    const auto in = to.innermost(arg, names, lists);
    const axis_labels labels = in.labels.substr(0, in.labels.size() - 2) + lists[1];
    const auto out = program.make(planner::select_op{rule}, {in}, labels, true, rule.keep);
    auto& made = program[out.value];
    if (is(selection_rule::kind::entries)) {
      made.shape.back() = rule.each;
    } else {
      made.shape.back() *= made.shape.back();
      made.each = rule.each;
    }
    made.expected = rule.keep;
    return to.place(out, names.substr(0, names.size() - 2) + lists[1]);
  }

  // The same choice with another weighting.
  node_id chosen(auto& g, weighting w) const {
    selection_rule other = rule;
    other.weights = w;
    return g.select(other, arg, ranked);
  }
  // The scores before relu, if they are of one: kept and positive is what the selection shows.
  std::optional<node_id> argument_of_relu(const auto& g) const {
    const map_node* const m = get_if<map_node>(&g[arg].op);
    const bool is_relu = m != nullptr && m->f == number_function{pointwise::relu};
    return is_relu ? std::optional(m->arg) : std::nullopt;
  }
  // c where the selection y is above 0: a product, so that the planner makes c only there.
  static node_id where_positive(auto& g, node_id y, node_id c) {
    return times(g, g.map(pointwise::power, 0, y), c);
  }
  // Which entries are kept is held constant, as the authors' code does: the kept scores have the
  // cotangent of their weighting, the others 0. Of the scores, or of their pairs for product_top_k.
  node_id cotangent(auto& g, node_id y, node_id c) const {
    switch (rule.weights) {
      case weighting::softmax: return cotangent_of_scores(g, y, c);
      case weighting::relu:
        return is(selection_rule::kind::top_k) ? where_positive(g, y, c) : keep(g, c, y);
      case weighting::softmax_of_all:
        return cotangent_of_scores(g, g.map_rows(row_function::softmax, 0, arg),
                                   times(g, chosen(g, weighting::one), c));
      case weighting::normalized: {  // (c - sum y c) / sum of the kept scores
        const node_id kept = chosen(g, weighting::one), yc = row_sum(g, times(g, y, c));
        const node_id sum = row_sum(g, chosen(g, weighting::score));
        return by_row(g, minus(g, times(g, kept, c), by_row(g, kept, yc)),
                      g.map(pointwise::inverse, 1, sum));
      }
      case weighting::score:
      case weighting::one: break;
    }
    return is(selection_rule::kind::nonzero) ? c : times(g, chosen(g, weighting::one), c);
  }
  void pull(auto& to, node_id y, node_id c) const {
    using enum selection_rule::kind;
    auto& g = to.g;
    const bool is_constant = rule.weights == weighting::one && !is(nonzero);
    if (!to.needs(arg) || is_constant) return;
    if (is(top_k) && rule.weights == weighting::score)
      if (const auto x = argument_of_relu(g)) return to.give(*x, where_positive(g, y, c));
    const node_id kept = cotangent(g, y, c);
    to.give(arg, is(product_top_k) ? g.unpair(kept, g.shape(arg).back()) : kept);
  }

  void list_ways(auto& ways) const {
    using enum selection_rule::kind;
    if (is(expert_choice)) return ways.add_whole();  // the tokens of a call depend on each other
    ways.add_rows();
    if (is(nonzero)) return ways.add_along_label();
    const bool needs_whole_rows =
        is(product_top_k) || ranked.has_value() || rule.weights == weighting::normalized;
    if (needs_whole_rows) return;
    ways.add_along_label(ways.last());
    if (is(top_k) && !rule.keeps_zeros) ways.add_merge_of_best(rule.keep);
  }
  // The best of each rank, and the last of them.
  void add_merge(auto& size) const {
    constexpr double number = sizeof(double);
    if (rule.weights == weighting::softmax) return size.add_selection(size.best() + number, 2);
    if (rule.weights == weighting::softmax_of_all)
      return size.add_selection(size.best() + 2 * number, 3);
    size.add_selection(size.best(), 2);
  }
};

}  // namespace fmoe::ir
