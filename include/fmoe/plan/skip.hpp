// SPDX-License-Identifier: MIT
// Skip: a selection restricts its label. Its product with a constant becomes a gather of the selected rows; wherever else
// it is read, it is expanded to a dense row with zeros.
#pragma once

#include <fmoe/plan/program.hpp>

namespace fmoe {

inline bool is_gather(const program& p, const operation& o) {
  if (o.what != operation::kind::product) return false;
  const use &scores = o.in[0], &table = o.in[1];
  return p[scores.value].selection && scores.labels.size() == 1 && !p[table.value].tokens &&
         has(table.labels, scores.labels[0]) && !has(o.out.labels, scores.labels[0]);
}

inline void skip(program& p) {
  std::vector<operation> done;
  std::vector<int> dense(p.values.size(), -1);  // the expanded form of a selection
  const auto expanded = [&](int v) {
    if (!p[v].selection) return v;
    int& d = dense[static_cast<extent>(v)];
    if (d < 0) {
      value row = p[v];
      row.selection = false;
      d = p.add(std::move(row));
      const std::string labels = std::string("abcdefgh").substr(0, p[v].shape.size());
      done.push_back({operation::kind::expand, {{v, labels}}, {d, labels}, {}});
    }
    return d;
  };
  for (operation& o : p.operations) {
    if (is_gather(p, o)) {
      o.what = operation::kind::gather;
      use& table = o.in[1];
      table.value = expanded(table.value);
      const std::string rows_first = o.in[0].labels + o.out.labels;
      if (table.labels != rows_first) {
        value t = p[table.value];
        t.leaf = -1;
        t.shape.clear();
        for (const char c : rows_first) t.shape.push_back(p.extent_of(table, c));
        const use permuted{p.add(std::move(t)), rows_first};
        done.push_back({operation::kind::reduce, {table}, permuted, {}});
        table = permuted;
      }
    } else {
      for (use& u : o.in)
        if (o.what != operation::kind::put) u.value = expanded(u.value);
      for (pass& s : o.passes)
        if (s.other >= 0) s.other = expanded(s.other);
    }
    done.push_back(std::move(o));
  }
  p.result = expanded(p.result);
  p.operations = std::move(done);
}

}  // namespace fmoe
