// SPDX-License-Identifier: MIT
// Reweigh: selections of the same scores with different weightings become one selection of scores,
// and a weighting of what it kept for each. So scores that only a selection reads still are, and
// they can be screened.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

class weightings {
 public:
  // The selections of the scores that operation number `first` selects from.
  weightings(const program& p, extent first) : program_(p) {
    if (!is_selection(p.operations[first])) return;
    for (extent k = first; k < p.operations.size(); ++k)
      if (k == first || is_same_choice(p.operations[first], p.operations[k])) places_.push_back(k);
  }

  bool share() const { return places_.size() > 1; }

  // Keeps the entries of 0 in each of several selections, so that all have the same entries.
  void keep_zeros_in(program& p) const {
    for (const extent k : places_)
      if (share()) as<select_op>(p.operations[k]).rule.keeps_zeros = true;
  }

  // Makes one selection, before the first one.
  void share_in(program& p) const {
    const operation first = p.operations[places_[0]];
    value scores = p[first.out.value];
    operation one = first;
    one.out.value = p.add(std::move(scores));
    as<select_op>(one).rule.weights = weighting::score;
    as<select_op>(one).rule.keeps_zeros = true;
    for (const extent k : places_) {
      operation& o = p.operations[k];
      const reweigh_op weigh{as<select_op>(o).rule.weights, as<select_op>(o).rule.keeps_zeros};
      vector<use> in{{one.out.value, o.out.labels}};
      if (weigh.weights == weighting::softmax_of_all) in.push_back(o.in[0]);
      o.what = weigh;
      o.in = std::move(in);
    }
    p.operations.insert(p.operations.begin() + static_cast<std::ptrdiff_t>(places_[0]), one);
  }

 private:
  bool is_selection(const operation& o) const {
    using enum selection_rule::kind;
    if (!is<select_op>(o) || !program_[o.out.value].selection || o.in_group()) return false;
    return as<select_op>(o).rule.what != nonzero;
  }
  bool is_same_choice(const operation& a, const operation& b) const {
    if (!is_selection(b) || !has_operands_of(a, b)) return false;
    selection_rule x = as<select_op>(a).rule, y = as<select_op>(b).rule;
    x.weights = y.weights;
    return x == y;
  }

  const program& program_;
  vector<extent> places_;
};

inline void reweigh(program& p) {
  for (extent k = 0; k < p.operations.size(); ++k)
    if (const weightings of(p, k); of.share()) of.share_in(p);
}

}  // namespace fmoe::planner
