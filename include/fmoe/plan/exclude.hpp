// SPDX-License-Identifier: MIT
// Exclude: the loops of a sum that leaves pairs out, and its pairs by group.
#pragma once

#include <algorithm>

#include <fmoe/base/vector.hpp>
#include <fmoe/plan/plan.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::plan {

// Makes an exclude step without its text and views. `operands` are in the step's order.
class exclusion {
 public:
  exclusion(const planner::program& p, const planner::operation& o)
      : program_(p),
        out_(o.out),
        mask_(planner::as<planner::exclude_op>(o)),
        own_(planner::labels_where(o.out.labels, [&](char c) { return !has(mask_.masked, c); })) {
    for (const planner::use& u : o.in)
      if (is_factor(u)) operands.push_back(&u);
    step_.factors = operands.size();
    for (const planner::use& u : o.in)
      if (!is_factor(u)) operands.push_back(&u);
    set_axes();
    set_pairs();
    const bool one_row = step_.free.size() == 1 && operands.size() == step_.factors + 1;
    step_.is_row = one_row && step_.free[0].c == 1 && step_.free[0].strides.back() == 1;
  }

  exclude_step take() { return std::move(step_); }

  vector<const planner::use*> operands;  // factors first

 private:
  // True if the operand has no axis of its own in the result.
  bool is_factor(const planner::use& u) const {
    return std::ranges::none_of(own_, [&](char c) { return has(u.labels, c); });
  }

  // True if only factors have the label.
  bool belongs_to_factors(char label) const {
    return std::none_of(operands.begin() + static_cast<std::ptrdiff_t>(step_.factors),
                        operands.end(),
                        [&](const planner::use* u) { return has(u->labels, label); });
  }

  exclude_step::axis axis(char label) const {
    exclude_step::axis a{.length = 1, .c = program_.stride(out_, label), .strides = {}};
    for (const planner::use* u : operands) {
      a.strides.push_back(program_.stride(*u, label));
      if (has(u->labels, label)) a.length = program_.extent_of(*u, label);
    }
    return a;
  }

  void set_axes() {
    step_.other = axis(mask_.masked[0]);
    step_.group = axis(mask_.masked[1]);
    for (const char c : own_) step_.free.push_back(axis(c));
    axis_labels seen = mask_.masked + own_;
    for (const planner::use* u : operands)
      for (const char c : u->labels) {
        if (has(seen, c)) continue;
        seen += c;
        (belongs_to_factors(c) ? step_.inner : step_.outer).push_back(axis(c));
      }
  }

  void set_pairs() {
    vector<index_pair> pairs = *mask_.left_out;
    if (!mask_.swapped)
      for (auto& [i, j] : pairs) std::swap(i, j);
    std::ranges::sort(pairs);
    for (const auto& [group, other] : pairs) {
      if (step_.groups.empty() || step_.groups.back() != group) {
        step_.groups.push_back(group);
        step_.ends.push_back(0);
      }
      step_.left_out.push_back(other);
      step_.ends.back() = step_.left_out.size();
    }
  }

  const planner::program& program_;
  const planner::use& out_;
  const planner::exclude_op& mask_;
  axis_labels own_;  // the labels of the result that are not the mask's
  exclude_step step_;
};

}  // namespace fmoe::plan
