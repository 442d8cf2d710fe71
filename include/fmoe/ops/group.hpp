// SPDX-License-Identifier: MIT
// The first and the last operation of a group, which runs once for each expert, on the rows of the
// tokens that selected it.
#pragma once

#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct pick_step {  // c[row] = a[token of the row], with its axes in order
  std::string text;
  view a, c;
  vector<nest_axis> out{};
  extent place = 0;  // elements of a from one place of the token's entries to the next

  const char* name() const { return "pick"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.write(c);
  }
  double flops(double rows) const {
    double elements = 8 * rows;
    for (const nest_axis& axis : out) elements *= static_cast<double>(axis.length);
    return elements;
  }
};

struct put_step {  // c[token of the row] += weight of the row * a[row]
  std::string text;
  view a, selection, c;
  extent columns = 0, keep = 0;

  const char* name() const { return "put"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read(selection);
    to.write(c);
  }
  double flops(double rows) const { return 8 * rows * static_cast<double>(columns); }
};

struct keep_step {  // c[token of the row, place of the row] = a[row]
  std::string text;
  view a, selection, c;
  extent columns = 0, keep = 0;

  const char* name() const { return "keep"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read(selection);
    to.write(c);
  }
  double flops(double rows) const { return 8 * rows * static_cast<double>(columns); }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

// The rows of the selected tokens; if the operand has the axis of experts, those of the expert, or
// those of its place among the token's entries.
struct pick_op {
  bool by_place = false;

  const char* name() const { return "pick"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& a = o.in[0];
    plan::pick_step s{.text = to.text(o), .a = to.whole(a.value), .c = to.whole(o.out.value)};
    if (o.expert != 0) (by_place ? s.place : s.a.expert) = to.program().stride(a, o.expert);
    const bool are_neighbours = o.expert == 0 || a.labels[0] == o.expert;
    if (are_neighbours) s.out = {{to.value_of(o.out).size(), 1, 0, 1}};
    else
      for (const char c : o.out.labels) s.out.push_back(to.nest(&a, nullptr, o.out, c));
    steps.push_back(std::move(s));
  }
};

// For each token the sum of the rows of its experts, weighted by the selection.
struct put_op {
  const char* name() const { return "put"; }
  void interpret(auto& in, const auto& o) const { in.put(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    steps.push_back(plan::put_step{.text = to.text(o),
                                   .a = to.whole(o.in[0].value),
                                   .selection = to.whole(o.in[1].value),
                                   .c = to.whole(o.out.value),
                                   .columns = to.value_of(o.out).size(),
                                   .keep = to.value_of(o.in[1]).keep});
  }
};

// The rows of each token's experts, by their places in the selection.
struct keep_op {
  const char* name() const { return "keep"; }
  void interpret(auto&, const auto&) const {}  // a pass of the CPU makes it

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    steps.push_back(plan::keep_step{.text = to.text(o),
                                    .a = to.whole(o.in[0].value),
                                    .selection = to.whole(o.in[1].value),
                                    .c = to.whole(o.out.value),
                                    .columns = to.value_of(o.in[0]).size(),
                                    .keep = to.value_of(o.in[1]).keep});
  }
};

}  // namespace fmoe::planner
