// SPDX-License-Identifier: MIT
// Which axes of a program's values count the experts of a selection, and which the rows of
// selections of a token, its heads.
#pragma once

#include <numeric>
#include <optional>

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/program_index.hpp>

namespace fmoe::planner {

class compact_axes {
 public:
  compact_axes(const program& p, value_id selection)
      : program_(p),
        index_(p),
        selection_(selection) {
    extent n = 0;
    for (const value_id v : p.values.ids()) {
      first_.push_back(n);
      n += p[v].shape.size();
    }
    parent_.resize(n);
    std::iota(parent_.begin(), parent_.end(), extent{0});
    for (const operation& o : p.operations) join(o);
    for (extent a = 0; a < n; ++a) parent_[a] = root(a);
    const extent last = first_[selection] + p[selection].shape.size() - 1;
    expert_ = parent_[last];
    if (has_heads()) head_ = parent_[last - 1];
  }

  const program_index& index() const { return index_; }
  value_id selection() const { return selection_; }

  bool has_heads() const { return program_[selection_].shape.size() > 1; }
  extent heads() const { return program_[selection_].rows(); }

  bool is_usable() const {
    const value& s = program_[selection_];
    const bool is_pairs = rule().what == selection_rule::kind::product_top_k;
    return s.per_token() && s.shape.size() <= (is_pairs ? 2 : 1) && s.expected < s.shape.back() &&
           s.keep > 0 && (!head_ || *head_ != expert_);
  }

  // True if the value has the axis of experts, once or more often.
  bool has_experts(value_id v) const { return count(v, expert_) > 0; }
  // The only axis of experts.
  std::optional<extent> expert_axis(value_id v) const { return axis(v, expert_); }
  std::optional<extent> head_axis(value_id v) const {
    return head_ ? axis(v, *head_) : std::nullopt;
  }
  // The label of the experts, 0 if there is none.
  char label_of(const use& u) const {
    const auto a = expert_axis(u.value);
    return a ? u.labels[*a] : char{0};
  }
  char head_of(const use& u) const {
    const auto a = head_axis(u.value);
    return a ? u.labels[*a] : char{0};
  }

  // The selection with the letters of an operation.
  use selection_for(const operation& o) const {
    char expert = 0, head = 0;
    std::string seen(o.out.labels);
    const auto look = [&](const use& u) {
      seen += u.labels;
      if (const char c = label_of(u)) expert = c;
      if (const char c = head_of(u)) head = c;
    };
    for (const use& u : o.in) look(u);
    if (o.out.value != value_id::none) look(o.out);
    axis_labels labels(1, expert);
    if (has_heads()) labels.insert(0, head != 0 ? head : free_letter(seen));
    return {selection_, labels};
  }

  // True if the operation selects the entries of the selection, perhaps with other weights.
  bool is_family(const operation& o) const {
    if (o.out.value == selection_) return true;
    const operation& base = program_.operations[*index_.producer(selection_)];
    if (is<select_op>(o) && is<select_op>(base)) {
      selection_rule a = as<select_op>(o).rule, b = as<select_op>(base).rule;
      const bool leaves_zeros_out =  // numbers of 0 are no entries of either
          a.weights != b.weights && !(a.keeps_zeros && b.keeps_zeros);
      a.weights = b.weights;
      return a == b && !leaves_zeros_out && has_operands_of(o, base);
    }
    return is<sample_op, rescale_op>(o) && o.in[0].value == selection_;
  }

  // True if each row of the selection has as many entries as there is room for.
  bool fills_places() const {
    using enum selection_rule::kind;
    const bool is_counted = rule().what == top_k || rule().what == product_top_k;
    return is_counted && (rule().keeps_zeros || !is_sparse(rule().weights));
  }
  const selection_rule& rule() const {
    return as<select_op>(program_.operations[*index_.producer(selection_)]).rule;
  }

  static char free_letter(std::string_view used) {
    char c = 'A';
    while (has(used, c)) ++c;
    return c;
  }

 private:
  static bool is_sparse(weighting w) {
    return w == weighting::score || w == weighting::relu || w == weighting::normalized;
  }

  extent root(extent a) const {
    while (parent_[a] != a) a = parent_[a];
    return a;
  }
  void join(value_id v, extent i, value_id w, extent j) {
    if (program_[v].shape[i] != program_[w].shape[j]) return;
    parent_[root(first_[v] + i)] = root(first_[w] + j);
  }
  void join(const operation& o) {
    vector<const use*> uses;
    for (const use& u : o.in) uses.push_back(&u);
    uses.push_back(&o.out);
    for (extent a = 0; a < uses.size(); ++a)
      for (extent b = a + 1; b < uses.size(); ++b)
        for (extent i = 0; i < uses[a]->labels.size(); ++i)
          for (extent j = 0; j < uses[b]->labels.size(); ++j)
            if (uses[a]->labels[i] == uses[b]->labels[j])
              join(uses[a]->value, i, uses[b]->value, j);
    const extent rank = program_[o.out.value].shape.size();
    for (const pass& q : o.passes) {
      if (q.other == value_id::none) continue;
      const extent own = program_[q.other].shape.size();
      for (extent i = 0; i < own; ++i) join(q.other, i, o.out.value, rank - own + i);
    }
  }

  extent count(value_id v, extent axis_class) const {
    extent n = 0;
    for (extent i = 0; i < program_[v].shape.size(); ++i) n += parent_[first_[v] + i] == axis_class;
    return n;
  }
  std::optional<extent> axis(value_id v, extent axis_class) const {
    if (count(v, axis_class) != 1) return {};
    for (extent i = 0;; ++i)
      if (parent_[first_[v] + i] == axis_class) return i;
  }

  const program& program_;
  program_index index_;
  value_id selection_;
  list_by<value_id, extent> first_;  // the number of a value's first axis
  vector<extent> parent_;            // of axes: those that are the same have one root
  extent expert_ = 0;
  std::optional<extent> head_;
};

}  // namespace fmoe::planner
