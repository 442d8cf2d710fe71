// SPDX-License-Identifier: MIT
// Pointwise: the operand itself, and then passes over it. Of map and join a program makes this.
#pragma once

#include <string>

#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct pointwise_step {  // c = a, then the epilogues
  std::string text;
  view a, c;
  extent columns = 0;
  extent column_step = 0;  // for each unit of the enclosing loop
  vector<epilogue> epilogues{};

  const char* name() const { return "pointwise"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read_others(epilogues);
    to.write(c);
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct pointwise_op {
  const char* name() const { return "pointwise"; }

  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto* loop, auto& steps) const {
    const extent columns = to.value_of(o.out).size();
    steps.push_back(plan::pointwise_step{
        .text = to.text(o),
        .a = to.in_loop(o.in[0].value, loop),
        .c = to.in_loop(o.out.value, loop),
        .columns = columns,
        .column_step = loop != nullptr ? columns / std::max<extent>(1, loop->length) : 0,
        .epilogues = to.epilogues(o, loop)});
  }
};

}  // namespace fmoe::planner
