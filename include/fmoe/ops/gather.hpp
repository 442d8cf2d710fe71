// SPDX-License-Identifier: MIT
// What a selection meets: a constant of which it reads only the selected rows or numbers.
#pragma once

#include <string>

#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// c[t, N] = sum over the rows of selections, and over the selected k of each row, of
// value * table[index, N].
struct gather_step {
  std::string text;
  view selection, table, c;
  extent rows = 0, keep = 0, N = 0;
  extent table_row = 0;  // elements from the table of one row to the next; 0 if they share it
  vector<epilogue> epilogues{};

  const char* name() const { return "gather"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(table);
    to.read_others(epilogues);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const { text_of << "  " << keep << " rows of " << N; }
};

struct rescale_step {  // c[t, row, k] = value * factors[index]
  std::string text;
  view selection, factors, c;
  extent rows = 0, keep = 0, table_row = 0;

  const char* name() const { return "rescale"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(factors);
    to.write(c);
  }
  double flops(double tokens) const { return 8 * tokens * static_cast<double>(rows * keep); }
};

// c[t, row, k] = value * f(sum over K of x[t, K] table[index, K]), where f is the passes; or f(...)
// where the value is above 0.
struct sample_step {
  std::string text;
  view selection, x, table, c;
  extent rows = 0, keep = 0, K = 0, table_row = 0;
  bool multiplies = true, weighs = true;
  vector<epilogue> epilogues{};

  const char* name() const { return "sample"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    to.read(x);
    to.read(table);
    to.read_others(epilogues);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  " << keep << " rows of " << K << (multiplies ? "" : ", not weighted");
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

// A selection times a constant: the selected rows, weighted and summed.
struct gather_op {
  const char* name() const { return "gather"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto &selection = o.in[0], &rows = o.in[1];
    const auto& s = to.value_of(selection);
    steps.push_back(plan::gather_step{.text = to.text(o),
                                      .selection = to.whole(selection.value),
                                      .table = to.table(rows.value),
                                      .c = to.whole(o.out.value),
                                      .rows = s.rows(),
                                      .keep = s.keep,
                                      .N = to.value_of(o.out).size(),
                                      .table_row = to.table_row(selection, rows),
                                      .epilogues = to.epilogues(o, nullptr)});
  }
};

// A selection times a constant of its last axis: a selection.
struct rescale_op {
  const char* name() const { return "rescale"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& s = to.value_of(o.in[0]);
    steps.push_back(plan::rescale_step{.text = to.text(o),
                                       .selection = to.whole(o.in[0].value),
                                       .factors = to.whole(o.in[1].value),
                                       .c = to.whole(o.out.value),
                                       .rows = s.rows(),
                                       .keep = s.keep,
                                       .table_row = to.table_row(o.in[0], o.in[1])});
  }
};

// A selection times a function of the product of a row and the constant's selected rows: a
// selection. Or that function where the selection is above 0, or for each of its entries.
struct sample_op {
  bool multiplies = true;
  bool weighs = true;

  const char* name() const { return "sample"; }

  // Entries of 0 stay 0. The passes are the function, and come before the weights.
  void interpret(auto& in, const auto& o) const {
    in.each_row(o, [&](auto kept, auto y, extent i) {
      in.sum_row(o, i, y.data(), {}, 1);
      in.apply_passes(o, i, y);
      for (extent k = 0; k < y.size(); ++k) {
        const double weight = multiplies ? kept[k] : kept[k] > 0;
        y[k] = weight == 0 ? 0 : weight * y[k];
      }
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto &selection = o.in[0], &x = o.in[1], &rows = o.in[2];
    const auto& s = to.value_of(selection);
    steps.push_back(plan::sample_step{.text = to.text(o),
                                      .selection = to.whole(selection.value),
                                      .x = to.whole(x.value),
                                      .table = to.table(rows.value),
                                      .c = to.whole(o.out.value),
                                      .rows = s.rows(),
                                      .keep = s.keep,
                                      .K = to.value_of(x).size(),
                                      .table_row = to.table_row(selection, rows),
                                      .multiplies = multiplies,
                                      .weighs = weighs,
                                      .epilogues = to.epilogues(o, nullptr)});
  }
};

}  // namespace fmoe::planner
