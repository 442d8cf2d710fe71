// SPDX-License-Identifier: MIT
// Token sum: the sum over the tokens of a call, and over the labels that the result does not have,
// of one or two operands with one row for each token. The first may be a selection.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// What a task needs for a sum over tokens that is a product of matrices: rows of a transposed block
// of tokens and columns of a packed one, so many of both at a time. Fewer rows and columns, and
// longer blocks, suit other kernels better.
struct token_product_room {
  static constexpr extent least_rows = 14, most_rows = 512, least_columns = 32, columns = 448,
                          put_columns = 128, most_block = 512, pad = 16;

  // Rows that are a power of two apart would share sets of L1.
  static constexpr extent row_size(extent block) { return round_up(block, pad) + pad; }

  // Returns the elements for a step, or more; 0 if it is none.
  static extent size(const vector<nest_axis>& out, bool is_product, extent block) {
    extent elements = 1;
    for (const nest_axis& x : out) elements *= x.length;
    if (!is_product || block > most_block || elements < least_rows * least_columns) return 0;
    return std::min(most_rows, elements / least_columns) * (row_size(block) + put_columns) +
           columns * block;
  }
};

// c[out] = sum over the tokens of a call, and over `summed`, of a[...] b[...]; b may not exist.
struct token_sum_step {
  std::string text;
  view a, b, c;
  vector<nest_axis> out{}, summed{};  // the last of `out` is the vector
  extent block = 0;                   // tokens that are summed by themselves

  extent product_room() const {
    return token_product_room::size(out, b.exists() && summed.empty(), block);
  }

  const char* name() const { return "token sum"; }
  void list_accesses(auto& to) const {
    to.read(a);
    if (b.exists()) to.read(b);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  " << block << " tokens at a time";
  }
};

// c[n, N] = sum over the tokens of a call of selection[t, n] b[t, N]; b may not exist.
struct selection_sum_step {
  std::string text;
  view selection, b, c;
  // Each token has so many rows of selections. With a table of its own, a row's experts are the
  // next ones of the result.
  extent rows = 1;
  bool own_tables = false;
  extent experts = 0, keep = 0, N = 0;          // experts of the result
  extent expert_stride = 0, column_stride = 1;  // of c
  extent block = 0;                             // tokens that are summed by themselves
  // Of c only the rows of selected experts are there, and N numbers lie behind each other.
  bool is_sparse = false;

  // Neighbouring experts whose columns lie in the same lines of the cache are summed together.
  static constexpr extent columns_together = 16;

  // How far the experts of a token's next row of selections lie from those of this one.
  extent own() const { return own_tables ? experts / rows : 0; }
  // The entries of so many tokens are sorted together: those of four blocks.
  extent sorted_tokens() const { return 4 * block; }
  extent sorted_entries() const { return sorted_tokens() * rows * keep; }
  // The rows that a task needs: the sum of a block, and the totals of an expert or, where experts
  // are columns, of some.
  extent rows_of_scratch() const { return 1 + (column_stride == 1 ? 1 : columns_together); }
  // The elements that a task needs: these rows, and sorted entries with their tokens and the end of
  // each expert's.
  extent scratch(extent element_bytes) const {
    return rows_of_scratch() * N + sorted_entries() +
           divide_up((experts + 1 + sorted_entries()) * sizeof(std::uint32_t), element_bytes);
  }

  const char* name() const { return "token sum"; }
  void list_accesses(auto& to) const {
    to.read(selection);
    if (b.exists()) to.read(b);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  " << keep << " of " << experts << " rows, " << block << " tokens at a time"
            << (is_sparse ? ", only the selected" : "");
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct token_sum_op {
  const char* name() const { return "token_sum"; }

  void interpret(auto& in, const auto& o) const {
    in.each_row(o, [&](auto, auto y, extent) {  // there is one row
      vector<double> of_token(y.size());
      for (extent t = 0; t < in.tokens(); ++t) {
        in.sum_row(o, t, of_token.data());
        for (extent k = 0; k < y.size(); ++k) y[k] += of_token[k];
      }
    });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    if (to.value_of(o.in[0]).selection) return steps.push_back(of_selection(to, o));
    const auto& a = o.in[0];
    const auto* b = o.in.size() > 1 ? &o.in[1] : nullptr;
    plan::token_sum_step s{.text = to.text(o),
                           .a = to.whole(a.value),
                           .b = b != nullptr ? to.whole(b->value) : plan::view{},
                           .c = to.whole(o.out.value),
                           .block = to.options().sum_block};
    for (const char c : o.out.labels) s.out.push_back(to.nest(&a, b, o.out, c));
    axis_labels seen = o.out.labels;
    for (const auto& u : o.in)
      for (const char c : u.labels) {
        if (has(seen, c)) continue;
        s.summed.push_back(to.nest(&a, b, o.out, c));
        seen += c;
      }
    to.needs_arena(s.product_room());
    steps.push_back(std::move(s));
  }
  // Each task sorts a block's entries in its arena and keeps a row there.
  plan::selection_sum_step of_selection(auto& to, const auto& o) const {
    const auto& program = to.program();
    const auto& chosen = o.in[0];
    const auto& selection = to.value_of(chosen);
    const bool has_operand = o.in.size() > 1;
    plan::selection_sum_step s{
        .text = to.text(o),
        .selection = to.whole(chosen.value),
        .b = has_operand ? to.whole(o.in[1].value) : plan::view{},
        .c = to.whole(o.out.value),
        .rows = selection.rows(),
        .own_tables = chosen.labels.size() > 1 && has(o.out.labels, chosen.labels[0]),
        .experts = selection.shape.back(),
        .keep = selection.keep,
        .N = has_operand ? to.value_of(o.in[1]).size() : 1,
        .expert_stride = program.stride(o.out, chosen.labels.back()),
        .block = to.options().sum_block};
    if (s.own_tables) s.experts *= s.rows;
    if (has_operand && !o.in[1].labels.empty())
      s.column_stride = program.stride(o.out, o.in[1].labels.back());
    to.needs_arena(s.scratch(to.options().element_bytes));
    to.make_sparse(s, o.out.value);
    return s;
  }
};

}  // namespace fmoe::planner
