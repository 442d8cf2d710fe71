// SPDX-License-Identifier: MIT
// Skip: a selection restricts its label. Its product with a constant becomes a gather of the
// selected rows; wherever else it is read, it is expanded to a dense row with zeros.
#pragma once

#include <optional>

#include <fmoe/planner/kernel_facts.hpp>
#include <fmoe/planner/machine.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

// True if the constant has the selected label once, and all or none of the other labels, which are
// rows of selections.
inline bool is_table(const use& selection, const use& constant) {
  const axis_labels rows = selection.labels.substr(0, selection.labels.size() - 1);
  const axis_labels shared = labels_where(rows, [&](char c) { return has(constant.labels, c); });
  return std::ranges::count(constant.labels, selection.labels.back()) == 1 &&
         (shared.empty() || shared == rows);
}

inline bool is_gather(const program& p, const operation& o) {
  if (!is<product_op>(o)) return false;
  const use &scores = o.in[0], &table = o.in[1];
  return p[scores.value].selection && !p[table.value].per_token() && is_table(scores, table) &&
         std::ranges::none_of(scores.labels, [&](char c) { return has(o.out.labels, c); });
}

// Returns the place of the operand that an operation sums over tokens as what each of them
// selected, in rows or in columns of its result.
inline std::optional<extent> summed_selection(const program& p, const operation& o,
                                              const machine& m, const kernel_facts& kernels) {
  if (!is<token_sum_op>(o)) return {};
  for (extent k = 0; k < o.in.size(); ++k) {
    const use& scores = o.in[k];
    const axis_labels row = o.in.size() > 1 ? o.in[1 - k].labels : axis_labels();
    const value& s = p[scores.value];
    if (!s.selection || s.keep * m.summed_entries_a_kept > s.shape.back()) continue;
    if (std::ranges::any_of(scores.labels, [&](char c) { return has(row, c); })) continue;
    const bool by_heads =
        kernels.compacts && scores.labels.size() == 2 && o.out.labels == scores.labels.back() + row;
    const bool by_rows = o.out.labels == scores.labels + row,
               by_columns = o.out.labels == row + scores.labels;
    const bool is_single = scores.labels.size() == 1;
    if (by_heads || (by_rows && (kernels.compacts || is_single)) || (by_columns && is_single))
      return k;
  }
  return {};
}

// True if the operation reads entries of selections as they are.
inline bool reads_entries(const program& p, const operation& o, const kernel_facts& kernels) {
  if (is<unpair_op>(o)) return kernels.compacts && p[o.in[0].value].selection;
  return is<sample_op, kept_op, take_op, weigh_op, reweigh_op, expert_sum_op>(o);
}

inline void skip(program& p, const machine& m = {}, const kernel_facts& kernels = {}) {
  vector<operation> done;
  list_by<value_id, value_id> dense(p.values.size(), value_id::none);  // selections, expanded
  const auto expanded = [&](value_id v) {
    if (!p[v].selection) return v;
    value_id& d = dense[v];
    if (d == value_id::none) {
      value row = p[v];
      row.selection = false;
      d = p.add(std::move(row));
      const axis_labels labels = axis_labels("abcdefgh").substr(0, p[v].shape.size());
      done.push_back({.what = expand_op{}, .in = {{v, labels}}, .out = {d, labels}});
    }
    return d;
  };
  for (operation& o : p.operations) {
    if (is_gather(p, o)) {
      o.what = gather_op{};
      use& table = o.in[1];
      table.value = expanded(table.value);
      const axis_labels& selected = o.in[0].labels;
      table = in_order(
          p, table,
          labels_where(selected, [&](char c) { return has(table.labels, c); }) + o.out.labels,
          done);
    } else if (reads_entries(p, o, kernels)) {
      if (is<take_op>(o)) o.in[1].value = expanded(o.in[1].value);
      done.push_back(std::move(o));
      continue;
    } else if (const auto selection = summed_selection(p, o, m, kernels)) {
      std::swap(o.in[0], o.in[*selection]);
      if (o.in.size() > 1) o.in[1].value = expanded(o.in[1].value);
    } else if (is<rescale_op>(o)) {
      o.in[1].value = expanded(o.in[1].value);
    } else {
      for (use& u : o.in)
        if (!is<put_op, keep_op>(o)) u.value = expanded(u.value);
      for (pass& s : o.passes)
        if (s.other != value_id::none) s.other = expanded(s.other);
    }
    done.push_back(std::move(o));
  }
  for (value_id& r : p.results) r = expanded(r);
  p.operations = std::move(done);
}

}  // namespace fmoe::planner
