// SPDX-License-Identifier: MIT
// Screen: a selection from a product with a parameter, which makes only few scores in full. The
// third operand is scratch.
#pragma once

#include <string>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// The entries for which a token's scratch has room. How many are not 0 is not known: a row with
// more candidates than a few in a hundred is computed in full.
constexpr extent screened_entries(const selection_rule& rule, extent keep, extent columns) {
  return rule.what == selection_rule::kind::nonzero ? columns / 64 + 1 : keep;
}

struct screen_step {  // the k greatest, or all but 0, of a[t, K] w[K, N] after the passes
  std::string text;
  selection_rule rule{};
  view a, selection, scratch;
  extent weight = 0;
  extent K = 0, N = 0, keep = 0;
  vector<epilogue> epilogues{};

  const char* name() const { return "screened"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read_weight(weight);
    to.read_others(epilogues);
    to.write(scratch);
    to.write(selection);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  ";
    if (rule.what == selection_rule::kind::nonzero) text_of << "all but 0";
    else text_of << keep;
    text_of << " of " << N << ", scores in 16 bits, survivors in full";
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct screen_op {
  selection_rule rule{};

  const char* name() const { return "screen"; }
  void interpret(auto&, const auto&) const {}  // a pass of engines makes it

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto &a = o.in[0], &w = o.in[1];
    axis_labels columns;
    for (const char c : w.labels)
      if (!has(a.labels, c)) columns += c;
    plan::screen_step s{.text = to.text(o),
                        .rule = rule,
                        .a = to.whole(a.value),
                        .selection = to.whole(o.out.value),
                        .scratch = to.whole(o.in[2].value),
                        .K = to.program().size_of(a, a.labels),
                        .N = to.program().size_of(w, columns),
                        .keep = to.value_of(o.out).keep,
                        .epilogues = to.epilogues(o, nullptr)};
    s.weight = to.weight({.storage = to.storage_of(w.value),
                          .depth = to.axes(w, a.labels),
                          .columns = to.axes(w, columns),
                          .batches = 1,
                          .K = s.K,
                          .N = s.N,
                          .screened = true});
    steps.push_back(std::move(s));
  }
};

}  // namespace fmoe::planner
