// SPDX-License-Identifier: MIT
// Group: where a selection of experts multiplies values that each expert makes, only the selected
// values are made. The product of the two, contracted with a weight of every expert, becomes a
// group. For each expert it picks the rows of the expert's tokens, runs the operations that make
// the values on them, and adds the weighted results to the tokens. Experts come in order.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/program_index.hpp>

namespace fmoe::planner {

class grouping {
 public:
  // `meeting` is the operation that multiplies selection and values, if it is the head of a group.
  grouping(program& p, const program_index& index, extent meeting) : program_(p), index_(index) {
    const operation& product = p.operations[meeting];
    if (!is<product_op>(product) || product.in[0].labels.size() != 1) return;
    const use &scores = product.in[0], &values = product.in[1];
    const char expert = scores.labels[0];
    const value_id made = product.out.value;
    const value &selection = p[scores.value], &numbers = p[values.value];
    const bool is_selection = selection.selection && selection.scope != value_scope::call;
    const bool is_row = !numbers.leaf && numbers.per_token() && !numbers.selection;
    if (!is_selection || !is_row) return;
    const bool has_expert = std::ranges::count(values.labels, expert) == 1;
    if (!has_expert || product.out.labels.size() != values.labels.size()) return;
    if (index.readers(made).size() != 1 || index.is_result(made)) return;
    const extent reader = index.readers(made).front();
    const operation sum = p.operations[reader];
    if (!multiplies_constant(p, sum) || sum.in[0].value != made) return;
    const char label = sum.in[0].labels[product.out.labels.find(expert)];
    if (std::ranges::count(sum.in[1].labels, label) != 1 || has(sum.out.labels, label)) return;

    id_ = p.groups.add({scores.value, p.extent_of(scores, expert), p[scores.value].keep,
                        p[scores.value].expected});
    find_inside(meeting, values.value, values.labels.find(expert));
    use rows{restricted(values.value, values.labels.find(expert)), {}};
    if (!p[rows.value].in_group() || is<pick_op>(body_.back())) {  // nothing would be saved
      p.groups.pop_back();
      return;
    }
    // The axes of the rows are those of the values; those of the product may be in another order.
    for (const char c : values.labels)
      if (c != expert) rows.labels += sum.in[0].labels[product.out.labels.find(c)];
    operation last{
        .what = product_op{}, .in = {rows, sum.in[1]}, .out = {.labels = sum.out.labels}};
    const value_id result = add(std::move(last), p[sum.out.value].shape, label);
    operation put{
        .what = put_op{}, .in = {{result, sum.out.labels}, scores}, .out = sum.out, .group = id_};
    body_.push_back(std::move(put));
    const auto at = p.operations.begin() + static_cast<std::ptrdiff_t>(reader);
    p.operations.insert(p.operations.erase(at), body_.begin(), body_.end());
    remove_unread(program_);
    found_ = true;
  }

  bool found() const { return found_; }

 private:
  struct restriction {  // a value restricted to a group
    value_id value;
    std::optional<extent> axis;
    value_id made;
  };

  static vector<extent> without(vector<extent> shape, std::optional<extent> axis) {
    if (axis) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(*axis));
    return shape;
  }
  static axis_labels without(axis_labels labels, char c) {
    labels.erase(c);
    return labels;
  }

  // Adds an operation of the group, which makes rows of this shape.
  value_id add(operation o, vector<extent> shape, char expert) {
    value v;
    v.shape = std::move(shape);
    v.group = id_;
    o.out.value = program_.add(std::move(v));
    o.group = id_;
    o.expert = expert;
    body_.push_back(std::move(o));
    return body_.back().out.value;
  }

  value_id picked(value_id v, std::optional<extent> axis) {
    const axis_labels labels = axis_labels("abcdefgh").substr(0, program_[v].shape.size());
    const char expert = axis ? labels[*axis] : char{0};
    return add({.what = pick_op{}, .in = {{v, labels}}, .out = {.labels = without(labels, expert)}},
               without(program_[v].shape, axis), expert);
  }

  // Returns the constant with its axis of experts first.
  value_id experts_first(value_id v, extent axis) {
    const axis_labels labels = axis_labels("abcdefgh").substr(0, program_[v].shape.size());
    const axis_labels order = labels[axis] + without(labels, labels[axis]);
    return in_order(program_, {v, labels}, order, body_).value;
  }

  // Returns the value at the selected places of one of its axes, or, without an axis, for the
  // selected tokens.
  value_id restricted(value_id v, std::optional<extent> axis) {
    for (const restriction& r : known_)
      if (r.value == v && r.axis == axis) return r.made;
    const value_id made = axis ? made_again(v, *axis) : picked(v, axis);
    known_.push_back({v, axis, made});
    return made;
  }

  // Lists the operations whose results serve the rows of the experts alone, from the last one to
  // the first, so that all that read a value are seen before it: the group repeats them.
  void find_inside(extent meeting, value_id rows, extent axis) {
    list_by<value_id, std::optional<extent>> axes(program_.values.size());
    list_by<value_id, extent> reads(program_.values.size());
    axes[rows] = axis;
    reads[rows] = 1;  // by the meeting
    for (extent k = meeting; k-- > 0;) {
      const operation& o = program_.operations[k];
      const value_id v = o.out.value;
      if (!axes[v] || index_.uses(v) != reads[v] || !is_repeatable(o, *axes[v])) continue;
      inside_.push_back({v, *axes[v]});
      each_read(o, [&](value_id read) { ++reads[read]; });
      for (const use& u : o.in)
        if (const extent at = u.labels.find(o.out.labels[*axes[v]]); at != axis_labels::npos)
          axes[u.value] = at;
      for (const pass& p : o.passes)
        if (const auto at = axis_of(o, p, *axes[v])) axes[p.other] = at;
    }
  }

  bool is_repeatable(const operation& o, extent axis) const {
    const char expert = o.out.labels[axis];
    if (is<pointwise_op>(o)) return !reads_call(o);
    if (is<product_op>(o) && (is_hadamard(o) || scales_rows(o, expert))) return true;
    if (!multiplies_constant(program_, o) || std::ranges::count(o.in[1].labels, expert) != 1)
      return false;
    return std::ranges::any_of(o.in[0].labels, [&](char c) { return !has(o.out.labels, c); });
  }

  // True if the operation multiplies the rows of each expert with one number.
  static bool scales_rows(const operation& o, char expert) {
    return o.in[0].labels == axis_labels(1, expert) && o.in[1].labels == o.out.labels;
  }

  // Repeats the operation that makes all of v, if nothing else needs that; otherwise picks from v.
  value_id made_again(value_id v, extent axis) {
    if (std::ranges::count(inside_, std::pair(v, axis)) == 0) return picked(v, axis);
    operation o = program_.operations[*index_.producer(v)];
    const char expert = o.out.labels[axis];
    if (is<product_op>(o) && is_hadamard(o)) o = as_pointwise(std::move(o));
    if (is<pointwise_op>(o)) return pointwise_again(o, axis);
    if (scales_rows(o, expert)) return scaled_again(o, axis);
    const extent at = o.in[0].labels.find(expert);
    const auto axis_of_rows = at == axis_labels::npos ? std::nullopt : std::optional(at);
    const use left{restricted(o.in[0].value, axis_of_rows), without(o.in[0].labels, expert)};
    return add({.what = product_op{},
                .in = {left, o.in[1]},
                .out = {.labels = without(o.out.labels, expert)}},
               without(program_[v].shape, axis), expert);
  }

  bool reads_call(const operation& o) const {
    return std::ranges::any_of(o.passes, [&](const pass& p) {
      return p.other != value_id::none && program_[p.other].scope == value_scope::call;
    });
  }

  // Returns the axis of experts of a pass's operand, if it has one.
  std::optional<extent> axis_of(const operation& o, const pass& p, extent axis) const {
    if (p.other == value_id::none) return {};
    const extent lead = o.out.labels.size() - program_[p.other].shape.size();
    return axis >= lead ? std::optional(axis - lead) : std::nullopt;
  }

  value_id scaled_again(const operation& o, extent axis) {
    const axis_labels labels = without(o.out.labels, o.out.labels[axis]);
    operation again{.what = pointwise_op{}, .in = {}, .out = {}};
    again.in = {{restricted(o.in[1].value, axis), labels}};
    again.out.labels = labels;
    const value_id factors = restricted(o.in[0].value, 0);
    again.passes.push_back({pass_kind::multiply, {}, factors});
    return add(std::move(again), without(program_[o.out.value].shape, axis), o.out.labels[axis]);
  }

  value_id pointwise_again(const operation& o, extent axis) {
    const axis_labels labels = without(o.out.labels, o.out.labels[axis]);
    operation again{.what = pointwise_op{}, .in = {}, .out = {}};
    again.in = {{restricted(o.in[0].value, axis), labels}};
    again.out.labels = labels;
    again.passes = o.passes;
    for (pass& p : again.passes) {
      if (p.other == value_id::none) continue;
      const auto own = axis_of(o, p, axis);
      if (program_[p.other].per_token()) {
        p.other = restricted(p.other, own);
      } else if (own) {
        p.other = experts_first(p.other, *own);
        p.by_expert = true;
      }
    }
    return add(std::move(again), without(program_[o.out.value].shape, axis), o.out.labels[axis]);
  }

  program& program_;
  const program_index& index_;  // of the program before the group
  group_id id_ = group_id::none;
  bool found_ = false;
  vector<operation> body_;
  vector<restriction> known_;
  vector<std::pair<value_id, extent>> inside_;  // values and their axes of experts
};

inline void group(program& p) {
  program_index index(p);
  for (extent i = 0; i < p.operations.size();) {
    const bool is_changed = grouping(p, index, i).found();
    if (is_changed) index = program_index(p);
    i = is_changed ? 0 : i + 1;
  }
}

}  // namespace fmoe::planner
