// SPDX-License-Identifier: MIT
// Sample: where a selection of few of many experts multiplies one number of each expert, f(x .
// u_e), or keeps it where the selection is above 0, only the selected numbers are made. The result
// is a selection, too, of the same entries.
#pragma once

#include <optional>

#include <fmoe/planner/kernel_facts.hpp>
#include <fmoe/planner/machine.hpp>
#include <fmoe/planner/program_index.hpp>
#include <fmoe/planner/skip.hpp>

namespace fmoe::planner {

// The selection and the numbers that a product multiplies. It is the selection with all its rows,
// even if the product has their sum.
struct meeting {
  use selection, numbers;
  bool summed = false;
  bool multiplies = true;  // or the numbers are kept where the selection is above 0
};

// The selection v = x^0 is made of, which is 1 where x is above 0.
inline std::optional<value_id> selection_below(const program& p, const program_index& index,
                                               value_id v) {
  const auto maker = index.producer(v);
  if (!maker || index.uses(v) != 1) return {};
  const operation& o = p.operations[*maker];
  const bool is_step = is<pointwise_op>(o) && o.passes.size() == 1 &&
                       o.passes[0].what == pass_kind::map &&
                       o.passes[0].f == number_function{pointwise::power, 0};
  if (!is_step || !p[o.in[0].value].selection) return {};
  return o.in[0].value;
}

// Numbers times 1 where a selection is above 0, as gradients are behind top_k of relu.
inline std::optional<meeting> keeping_in(const program& p, const program_index& index,
                                         const operation& o) {
  const bool same_labels = o.in[1].labels == o.in[0].labels && o.out.labels == o.in[0].labels;
  if (!same_labels) return {};
  for (const extent side : {extent{0}, extent{1}})
    if (const auto selection = selection_below(p, index, o.in[side].value))
      return meeting{{*selection, o.in[side].labels}, o.in[1 - side], false, false};
  return {};
}

inline std::optional<meeting> meeting_in(const program& p, const program_index& index,
                                         const operation& o, const kernel_facts& kernels) {
  if (!is<product_op>(o)) return std::nullopt;
  if (kernels.samples_kept)
    if (const auto found = keeping_in(p, index, o)) return found;
  if (p[o.in[0].value].selection) {
    const axis_labels &chosen = o.in[0].labels, &numbers = o.in[1].labels;
    const bool fits = o.out.labels == chosen && !numbers.empty() &&
                      chosen.back() == numbers.back() && has(chosen, numbers[0]);
    return fits ? std::optional(meeting{o.in[0], o.in[1]}) : std::nullopt;
  }
  const bool same_labels = o.in[1].labels == o.in[0].labels && o.out.labels == o.in[0].labels;
  if (!same_labels || o.out.labels.size() != 1) return std::nullopt;
  for (const extent side : {extent{0}, extent{1}}) {
    const value_id v = o.in[side].value;
    const auto maker = index.producer(v);
    if (!maker || index.uses(v) != 1) continue;
    const operation& sum = p.operations[*maker];
    const bool sums_rows = is<reduce_op>(sum) && p[sum.in[0].value].selection &&
                           sum.out.labels == sum.in[0].labels.substr(sum.in[0].labels.size() - 1);
    if (sums_rows) return meeting{sum.in[0], o.in[1 - side], true};
  }
  return std::nullopt;
}

// A product over the axis of the numbers now also sums over the rows of selections: gives them
// letters that the product does not have yet.
inline bool sum_rows(program& p, const program_index& index, value_id numbers, extent rows) {
  if (index.readers(numbers).size() != 1 || index.is_result(numbers)) return false;
  operation& o = p.operations[index.readers(numbers).front()];
  if (!multiplies_constant(p, o) || o.in[0].value != numbers) return false;
  const char axis = o.in[0].labels[0];
  if (has(o.out.labels, axis) || std::ranges::count(o.in[1].labels, axis) != 1) return false;
  for (char c = 'a'; rows > 0; ++c) {
    if (has(o.in[0].labels, c) || has(o.in[1].labels, c) || has(o.out.labels, c)) continue;
    o.in[0].labels.insert(0, c);
    --rows;
  }
  return true;
}

// Turns the product at `place` into a sample if it can be one. Returns true if something changed.
inline bool sample_one(program& p, const program_index& index, extent place, const machine& m,
                       const kernel_facts& kernels) {
  const auto found = meeting_in(p, index, p.operations[place], kernels);
  if (!found) return false;
  const use &selection = found->selection, &numbers = found->numbers;
  const value s = p[selection.value];
  const extent rows = s.rows();
  if (s.shape.back() < m.sampled * rows * s.expected) return false;
  vector<pass> passes;
  value_id v = numbers.value;
  auto maker = index.producer(v);
  for (; maker && index.uses(v) == 1; maker = index.producer(v)) {
    const operation& map = p.operations[*maker];
    if (!is<pointwise_op>(map)) break;
    if (!std::ranges::all_of(map.passes, [](const pass& q) { return q.what == pass_kind::map; }))
      return false;
    passes.insert(passes.begin(), map.passes.begin(), map.passes.end());
    v = map.in[0].value;
  }
  if (!maker || index.uses(v) != 1) return false;
  const operation& dot = p.operations[*maker];
  if (!multiplies_constant(p, dot) || p[dot.in[0].value].selection) return false;
  const use &x = dot.in[0], &constant = dot.in[1];
  // The labels of the selection, as the dot product names them.
  axis_labels lead = dot.out.labels.substr(0, dot.out.labels.size() - 1);
  for (char c = 'A'; lead.size() + 1 < selection.labels.size(); ++c)
    if (!has(x.labels, c) && !has(constant.labels, c)) lead.insert(0, c);
  const use selected{selection.value, lead + dot.out.labels.back()};
  if (selected.labels.size() != selection.labels.size() || !is_table(selected, constant))
    return false;
  for (const char c : x.labels) {
    const bool is_summed = !has(dot.out.labels, c) && has(constant.labels, c);
    if (!is_summed || std::ranges::count(x.labels, c) != 1) return false;
  }

  const axis_labels order =
      labels_where(selected.labels, [&](char c) { return has(constant.labels, c); }) + x.labels;
  if (order.size() != constant.labels.size()) return false;
  const value_id made = p.operations[place].out.value;
  if (found->summed && !sum_rows(p, index, made, selection.labels.size() - 1)) return false;

  vector<operation> before;
  operation sampled{.what = sample_op{found->multiplies},
                    .in = {selected, x, in_order(p, constant, order, before)},
                    .out = {made, selected.labels},
                    .passes = std::move(passes)};
  p[made].shape = s.shape;
  p[made].selection = true;
  p[made].keep = s.keep;
  p[made].expected = s.expected;
  p.operations[place] = std::move(sampled);
  p.operations.insert(p.operations.begin() + static_cast<std::ptrdiff_t>(place), before.begin(),
                      before.end());
  remove_unread(p);
  return true;
}

inline void sample(program& p, const machine& m, const kernel_facts& kernels) {
  program_index index(p);
  for (extent i = 0; i < p.operations.size();) {
    const bool is_changed = sample_one(p, index, i, m, kernels);
    if (is_changed) index = program_index(p);
    i = is_changed ? 0 : i + 1;
  }
}

}  // namespace fmoe::planner
