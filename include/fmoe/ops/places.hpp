// SPDX-License-Identifier: MIT
// Numbers at the kept entries of a selection, with places instead of experts, and selections with
// other numbers. Passes for the CPU make these.
#pragma once

#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// c[t, row, k] = a[t, row, index], with the other axes of a. If it spreads, c[t, row, index] =
// a[t, row, k], and 0 at the other indices.
struct take_step {
  std::string text;
  view selection, a, c;
  extent rows = 0, keep = 0;
  nest_axis row{}, entry{};  // the strides of rows of selections, and of experts and of places
  vector<nest_axis> out{};
  extent columns = 0;  // of c
  bool spreads = false;

  const char* name() const { return spreads ? "spread" : "take"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(a);
    to.write(c);
  }
  double flops(double tokens) const { return 8 * tokens * static_cast<double>(columns); }
};

struct weigh_step {  // a selection with the entries of another one and the values a[t, row, k]
  std::string text;
  view selection, a, c;
  extent rows = 0, keep = 0;

  const char* name() const { return "weigh"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(a);
    to.write(c);
  }
  double flops(double tokens) const { return 8 * tokens * static_cast<double>(rows * keep); }
};

struct reweigh_step {  // a selection of scores with another weighting
  std::string text;
  view selection, scores, c;  // all scores, for weights that depend on them
  extent rows = 0, keep = 0, columns = 0;
  weighting weights{};
  bool keeps_zeros = false;

  const char* name() const { return "reweigh"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    if (scores.exists()) to.read(scores);
    to.write(c);
  }
  double flops(double tokens) const {
    return 8 * tokens * static_cast<double>(rows * (keep + columns));
  }
};

struct expand_step {  // a selection as dense rows
  std::string text;
  view selection, c;
  extent rows = 0, columns = 0, keep = 0;

  const char* name() const { return "expand"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.write(c);
  }
  double flops(double tokens) const { return 4 * tokens * static_cast<double>(rows * columns); }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

// The numbers of an operand at the kept entries of a selection, with places instead of experts. Or
// the other way: numbers by places as rows of all experts, 0 where nothing is kept.
struct take_op {
  bool spreads = false;

  const char* name() const { return "take"; }
  void interpret(auto&, const auto&) const {}

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto &chosen = o.in[0], &a = o.in[1];
    const auto& s = to.value_of(chosen);
    plan::take_step t{.text = to.text(o),
                      .selection = to.whole(chosen.value),
                      .a = to.whole(a.value),
                      .c = to.whole(o.out.value),
                      .rows = s.rows(),
                      .keep = s.keep,
                      .entry = to.nest(&a, nullptr, o.out, chosen.labels.back()),
                      .columns = to.value_of(o.out).size(),
                      .spreads = spreads};
    if (chosen.labels.size() > 1) t.row = to.nest(&a, nullptr, o.out, chosen.labels[0]);
    for (const char c : o.out.labels)
      if (!has(chosen.labels, c)) t.out.push_back(to.nest(&a, nullptr, o.out, c));
    steps.push_back(std::move(t));
  }
};

// A selection with other numbers, one for each place.
struct weigh_op {
  const char* name() const { return "weigh"; }
  void interpret(auto&, const auto&) const {}

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& s = to.value_of(o.out);
    steps.push_back(plan::weigh_step{.text = to.text(o),
                                     .selection = to.whole(o.in[0].value),
                                     .a = to.whole(o.in[1].value),
                                     .c = to.whole(o.out.value),
                                     .rows = s.rows(),
                                     .keep = s.keep});
  }
};

// A selection of scores, those of 0 among them, with a weighting of them. A second operand has all
// scores.
struct reweigh_op {
  weighting weights{};
  bool keeps_zeros = false;  // as selection_rule::keeps_zeros

  const char* name() const { return "reweigh"; }
  void interpret(auto&, const auto&) const {}

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& s = to.value_of(o.out);
    const bool has_scores = o.in.size() > 1;
    steps.push_back(
        plan::reweigh_step{.text = to.text(o),
                           .selection = to.whole(o.in[0].value),
                           .scores = has_scores ? to.whole(o.in[1].value) : plan::view{},
                           .c = to.whole(o.out.value),
                           .rows = s.rows(),
                           .keep = s.keep,
                           .columns = has_scores ? s.shape.back() : 0,
                           .weights = weights,
                           .keeps_zeros = keeps_zeros});
  }
};

// A selection as a dense row.
struct expand_op {
  const char* name() const { return "expand"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& out = to.value_of(o.out);
    steps.push_back(plan::expand_step{.text = to.text(o),
                                      .selection = to.whole(o.in[0].value),
                                      .c = to.whole(o.out.value),
                                      .rows = out.rows(),
                                      .columns = out.shape.back(),
                                      .keep = out.keep});
  }
};

}  // namespace fmoe::planner
