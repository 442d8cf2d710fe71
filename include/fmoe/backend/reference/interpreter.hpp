// SPDX-License-Identifier: MIT
// Runs a lowered program in double, operation by operation, each by plain loops over all tokens.
#pragma once

#include <memory>
#include <set>

#include <fmoe/backend/reference/contract.hpp>
#include <fmoe/backend/reference/selections.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::reference_backend {

// A value of a program: `rows` rows of `width` numbers. A constant has one row, a value of tokens
// has one row for each token, and a value of a group has one row for each pair of a token and an
// expert that the token selected. A selection is a dense row with zeros.
struct array {
  extent rows = 0, width = 0;
  vector<double> numbers;

  array() = default;
  array(extent r, extent w) : rows(r), width(w), numbers(r * w) {}
  double* row(extent i) { return numbers.data() + i * width; }
  const double* row(extent i) const { return numbers.data() + i * width; }
  reference_backend::row span(extent i) { return {row(i), width}; }
  const_row span(extent i) const { return {row(i), width}; }
};

// One selected expert of one token.
struct selected_pair {
  extent token, expert;
  double weight;
};

class interpreter {
  using operation = planner::operation;
  using use = planner::use;
  using value_id = planner::value_id;

 public:
  // `leaves` are the constants of the program and, if no call binds them, its inputs. Each top_k
  // keeps `keep` entries at most.
  interpreter(const planner::program& p, const vector<std::shared_ptr<array>>& leaves,
              extent tokens, extent keep)
      : program_(p),
        tokens_(tokens),
        keep_(keep),
        values_(p.values.size()),
        pairs_(p.groups.size()) {
    for (const value_id v : p.values.ids())
      if (p[v].leaf) values_[v] = leaves[*p[v].leaf];
  }

  void run() {
    for (const planner::operation& o : program_.operations) run(o);
  }

  const array& operator[](value_id value) const { return *values_[value]; }

  // What the rules of operations are made of.
  const planner::program& program() const { return program_; }
  extent tokens() const { return tokens_; }
  const vector<extent>& shape(value_id value) const { return program_[value].shape; }
  // Returns the row of an operand that belongs to row i of the operation's result.
  const_row operand_row(const operation& o, extent operand, extent i) {
    const value_id v = o.in[operand].value;
    return std::as_const(at(v)).span(row_of(v, o, i));
  }
  // Calls f(x, y, i) for each row y of the result, its number and the row x of the first operand.
  template <class F>
  void each_row(const operation& o, const F& f) {
    array& out = at(o.out.value);
    for (extent i = 0; i < out.rows; ++i) f(operand_row(o, 0, i), out.span(i), i);
  }

  // Sums the products of the operands in row i, where `counts` accepts them; leaves out the
  // operands before `first`.
  void sum_row(const operation& o, extent i, double* result,
               std::function<bool(const positions&)> counts = {}, extent first = 0) {
    vector<labelled> in;
    for (const use& u : std::span(o.in).subspan(first))
      in.push_back({at(u.value).row(row_of(u.value, o, i)), shape(u.value), u.labels});
    std::string fixed;
    positions at_expert{};
    const bool has_expert = o.in_group() && o.expert != 0;
    if (has_expert && program_[o.out.value].in_group()) {
      fixed = o.expert;
      at_expert[index_of(o.expert)] = pairs(o)[i].expert;
    }
    contraction sum(std::move(in), o.out.labels, lengths(o), fixed, at_expert);
    sum.counts = std::move(counts);
    sum.run(result);
  }

  // Sums the entries of row i at this place of a label.
  void sum_entry(const operation& o, extent i, char label, extent place, double* result) {
    sum_row(o, i, result, [=](const positions& at) { return at[index_of(label)] == place; });
  }

  void contract(const operation& o) {
    array& out = at(o.out.value);
    for (extent i = 0; i < out.rows; ++i) {
      sum_row(o, i, out.row(i));
      if (o.start == value_id::none) continue;
      const double* start = at(o.start).row(row_of(o.start, o, i));
      for (extent k = 0; k < out.width; ++k) out.row(i)[k] += start[k];
    }
  }

  static void apply(row_function f, double parameter, grouping groups, double bound, row x) {
    reference_backend::apply(f, parameter, groups, bound, x);
  }

  void apply_passes(const operation& o, extent i, row x) {
    for (const planner::pass& p : o.passes) {
      if (p.what == pass_kind::map) {
        if (p.f.own != nullptr) p.f.own->apply(x.data(), x.size());
        else
          for (double& v : x) v = reference_backend::apply(p.f.fn, p.f.parameter, v);
        continue;
      }
      const array& other = at(p.other);
      const double* from = other.row(row_of(p.other, o, i));
      extent period = other.width;
      if (p.by_expert) {
        period /= shape(p.other)[0];
        from += period * pairs(o)[i].expert;
      }
      for (extent k = 0; k < x.size(); ++k) x[k] = joined(p.what, x[k], from[k % period]);
    }
  }

  void select(const selection_rule& rule, const operation& o) {
    using enum selection_rule::kind;
    const array& scores = at(o.in[0].value);
    const extent n = shape(o.in[0].value).back(), columns = shape(o.out.value).back();
    array& out = at(o.out.value);
    if (rule.what == expert_choice) {
      out.numbers = scores.numbers;
      return reference_backend::expert_choice(rule, n, at(o.in[1].value).numbers, out.numbers);
    }
    for (extent i = 0; i < out.rows; ++i) {
      const double* from = scores.row(row_of(o.in[0].value, o, i));
      for (extent r = 0; columns != 0 && r < out.width / columns; ++r) {
        const row to = out.span(i).subspan(r * columns, columns);
        if (rule.what == product_top_k) {
          const double* lists = from + 2 * r * n;
          reference_backend::product_top_k(at_most(rule, keep_), {lists, n}, {lists + n, n}, to);
          continue;
        }
        if (rule.what == entries) {
          const double* lists = from + 2 * r * n;
          reference_backend::entries({lists, n}, {lists + n, n}, to);
          continue;
        }
        std::copy_n(from + r * n, n, to.begin());
        if (rule.what == top_k) {
          const value_id by = o.in.back().value;
          reference_backend::top_k(to, {at(by).row(row_of(by, o, i)) + r * n, n},
                                   std::min(program_[o.out.value].keep, keep_), rule.weights);
        }
        if (rule.what == top_p) reference_backend::top_p(to, rule.mass, rule.weights);
      }
    }
  }

  // Adds the weighted rows of each token, experts in order.
  void put(const operation& o) {
    array& out = at(o.out.value);
    const array& rows = at(o.in[0].value);
    for (extent i = 0; i < pairs(o).size(); ++i)
      for (extent k = 0; k < out.width; ++k)
        out.row(pairs(o)[i].token)[k] += pairs(o)[i].weight * rows.row(i)[k];
  }

 private:
  array& at(value_id value) { return *values_[value]; }

  // Returns the row of a value that belongs to row i of the operation's result.
  extent row_of(value_id value, const operation& o, extent i) const {
    const planner::value& v = program_[value];
    if (!v.per_token()) return 0;
    const bool is_group_row = program_[o.out.value].in_group();
    if (v.in_group() || !is_group_row) return i;
    return pairs(o)[i].token;
  }
  const vector<selected_pair>& pairs(const operation& o) const { return pairs_[o.group]; }
  extent rows_of(value_id value) const {
    const planner::value& v = program_[value];
    if (!v.per_token()) return 1;
    return v.in_group() ? pairs_[v.group].size() : tokens_;
  }

  void run(const operation& o) {
    if (o.in_group()) find_pairs(o.group);
    values_[o.out.value] =
        std::make_shared<array>(rows_of(o.out.value), program_[o.out.value].size());
    visit([&](const auto& kind) { kind.interpret(*this, o); }, o.what);
    const bool passes_are_done = planner::is<planner::sample_op>(o);
    if (!passes_are_done)
      for (extent i = 0; i < at(o.out.value).rows; ++i) apply_passes(o, i, at(o.out.value).span(i));
  }

  // Finds the selected experts of each token, by token.
  void find_pairs(planner::group_id group) {
    auto& pairs = pairs_[group];
    const planner::expert_group& g = program_.groups[group];
    const array& selection = at(g.selection);
    if (!pairs.empty()) return;
    for (extent t = 0; t < selection.rows; ++t)
      for (extent e = 0; e < g.experts; ++e)
        if (selection.row(t)[e] != 0) pairs.push_back({t, e, selection.row(t)[e]});
  }

  // Returns the length of each label; it is the shortest one, because a bias may be in the last row
  // of a weight.
  positions lengths(const operation& o) const {
    positions length;
    length.fill(std::numeric_limits<extent>::max());
    for (const use& u : o.in)
      for (extent k = 0; k < u.labels.size(); ++k) {
        extent& n = length[index_of(u.labels[k])];
        n = std::min(n, shape(u.value)[k]);
      }
    return length;
  }

  const planner::program& program_;
  extent tokens_, keep_;
  list_by<value_id, std::shared_ptr<array>> values_;
  list_by<planner::group_id, vector<selected_pair>> pairs_;
};

}  // namespace fmoe::reference_backend
