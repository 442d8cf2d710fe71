// SPDX-License-Identifier: MIT
// Shared by the tests of random expressions: the limits of their plans, and counts of what the
// plans contain.
#pragma once

#include <map>

#include "plans.hpp"

namespace fmoe::test {

// Sums have small blocks, so that small expressions have several.
inline planner::plan_options usual_limits() {
  planner::plan_options o;
  o.sum_block = 16;
  return o;
}

inline planner::plan_options tiny_limits() {
  planner::plan_options o = usual_limits();
  o.shape.streamed = 1 << 10;
  o.shape.chunk = 64;
  o.shape.tile = 24;
  return o;
}

inline planner::plan_options naive_limits() {
  planner::plan_options o;
  o.naive = true;
  return o;
}

struct census {
  std::map<std::string, int> plans;

  void add(const plan::step_plan& p) {
    std::map<std::string, int> here;
    for (const auto* steps : {&p.prologue, &p.steps})
      count(*steps, steps == &p.prologue ? "once " : "", here);
    if (!p.tokens) here["no tokens"] = 1;
    for (const auto& [what, n] : here) ++plans[what];
  }

  // Requires that at least this many plans had each of these kinds.
  void require(int least, std::initializer_list<const char*> kinds) const {
    for (const char* what : kinds) {
      const int found = plans.contains(what) ? plans.at(what) : 0;
      INFO(what);
      CHECK(found >= least);
    }
  }

 private:
  static void count(const detail::vector<plan::step>& steps, const std::string& lead,
                    std::map<std::string, int>& here) {
    for (const plan::step& s : steps) {
      here[lead + kind_of(s)] = 1;
      if (const auto* g = get_if<plan::row_function_step>(&s)) here[name_of(g->fn)] = 1;
      if (const auto* n = get_if<plan::row_norm_step>(&s)) here[name_of(n->which)] = 1;
      if (const auto* k = get_if<plan::select_step>(&s)) here[name_of(k->rule.what)] = 1;
      if (const auto* g = get_if<plan::gemm_step>(&s)) {
        if (g->accumulate) here["accumulate"] = 1;
        if (g->rows.size() > 1) here["many rows"] = 1;
        if (!g->epilogues.empty()) here["gemm epilogue"] = 1;
      }
      if (const auto* g = get_if<plan::gather_step>(&s); g != nullptr && !g->epilogues.empty())
        here["gather epilogue"] = 1;
      if (const auto* g = get_if<plan::gather_step>(&s); g != nullptr && g->rows > 1)
        here["gather of rows"] = 1;
      visit(
          [&](const auto& any) {
            if constexpr (requires { any.epilogues; })
              for (const plan::epilogue& e : any.epilogues)
                here["pass " + std::string(sign_of(e.what))] = 1;
          },
          s);
      if (const auto* g = get_if<plan::group_step>(&s)) count(g->body, "group ", here);
      if (const auto* l = get_if<plan::loop_step>(&s)) {
        count(l->body, "loop ", here);
        if (l->length > l->chunk) here["chunks"] = 1;
      }
    }
  }
};

}  // namespace fmoe::test
