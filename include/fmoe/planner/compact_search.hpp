// SPDX-License-Identifier: MIT
// Which values of a program have to be made only for the kept entries of a selection: those that
// are 0 elsewhere, and those that are needed nowhere else.
#pragma once

#include <optional>

#include <fmoe/planner/compact_axes.hpp>
#include <fmoe/planner/skip.hpp>

namespace fmoe::planner {

// Finds the values that are made for kept entries of one selection only.
class compact_search {
 public:
  compact_search(const program& p, value_id selection, const machine& m)
      : axes_(p, selection),
        program_(p),
        machine_(m),
        zero_(p.values.size()),
        needed_(p.values.size()),
        banned_(p.values.size()) {
    if (!axes_.is_usable()) return;
    do {
      find_zero();
      find_needed();
    } while (ban());
    bool multiplies = false, sums = false;
    for (const operation& o : program_.operations) {
      const form f = is_compact(o.out.value) ? form_of(o) : form::none;
      multiplies |= f == form::sample || f == form::expert_product;
      if (is<token_sum_op>(o))
        for (const use& u : o.in) sums |= is_compact(u.value) && !program_[u.value].selection;
    }
    found_ = multiplies && sums;
  }

  bool found() const { return found_; }
  const compact_axes& axes() const { return axes_; }

  enum class form { none, kept, pointwise, relabelled, sample, expert_product };

  bool is_compact(value_id v) const { return zero_[v] || needed_[v]; }

  // The one operand that is a constant with the axis of experts, if there is one.
  std::optional<extent> weight_of(const operation& o) const {
    std::optional<extent> found;
    if (!is<product_op>(o)) return found;
    for (extent k = 0; k < o.in.size(); ++k)
      if (program_[o.in[k].value].is_constant() && axes_.expert_axis(o.in[k].value)) {
        if (found) return {};
        found = k;
      }
    return found;
  }
  bool has_weights(const operation& o) const {
    return std::ranges::any_of(o.in, [&](const use& u) {
      return program_[u.value].is_constant() && axes_.has_experts(u.value);
    });
  }

  // How the operation makes its result for kept entries only.
  form form_of(const operation& o) const {
    const value& out = program_[o.out.value];
    if (!out.per_token() || !axes_.expert_axis(o.out.value)) return form::none;
    if (out.selection) return axes_.is_family(o) ? form::kept : form::none;
    if (is<pointwise_op>(o)) return takes_passes_of(o) ? form::pointwise : form::none;
    if (!reads_rows(o)) return form::none;
    if (is<reduce_op>(o)) return axes_.expert_axis(o.in[0].value) ? form::relabelled : form::none;
    if (!is<product_op>(o)) return form::none;
    if (!has_weights(o)) return form::relabelled;
    const auto w = weight_of(o);
    if (!w || *w != 1) return form::none;
    const use &x = o.in[0], &table = o.in[1];
    if (!axes_.expert_axis(x.value) && is_sample(o, x, table)) return form::sample;
    return is_expert_product(o, x, table) ? form::expert_product : form::none;
  }

  // True for a selection of the entries at hand.
  bool is_own_selection(value_id v) const { return program_[v].selection && zero_[v]; }

  bool is_scalar(value_id v) const {  // one number of each expert, or of each head and expert
    return program_[v].shape.size() == 1 + (axes_.head_axis(v) ? 1 : 0);
  }

  // The product of a scalar and of rows of each expert, which is read as the scalar times a product
  // of the rows.
  struct weighted_rows {
    use weights, rows;
  };
  static std::optional<weighted_rows> as_weighted(const operation& o) {
    if (!is<product_op>(o)) return {};
    for (const extent k : {extent{0}, extent{1}}) {
      const use &w = o.in[k], &rows = o.in[1 - k];
      const bool fits = w.labels.size() == 1 && rows.labels.size() > 1 &&
                        has(rows.labels, w.labels[0]) && rows.labels.size() == o.out.labels.size();
      if (fits) return weighted_rows{w, rows};
    }
    return {};
  }

  // True if the operation reads a sum over heads where its heads would have to be told apart.
  bool mixes_heads(const operation& o) const {
    extent sums = 0;
    bool has_head = axes_.head_axis(o.out.value).has_value();
    for (const use& u : o.in) {
      sums += is_sum_of_heads(u.value);
      has_head |= axes_.head_axis(u.value).has_value();
    }
    return sums > 1 || (sums == 1 && has_head);
  }

 private:
  bool is_sum_of_heads(value_id v) const {
    return axes_.has_heads() && zero_[v] && !axes_.head_axis(v);
  }

  // Operands with experts are rows of tokens, and no sums over tokens are read.
  bool reads_rows(const operation& o) const {
    if (o.start != value_id::none || !o.passes.empty()) return false;
    return std::ranges::all_of(o.in, [&](const use& u) {
      const value& v = program_[u.value];
      return v.scope != value_scope::call &&
             (!axes_.has_experts(u.value) || axes_.expert_axis(u.value));
    });
  }

  bool takes_passes_of(const operation& o) const {
    const value_id base = o.in[0].value;
    if (!program_[base].per_token() || axes_.expert_axis(base) != axes_.expert_axis(o.out.value))
      return false;
    return std::ranges::all_of(o.passes, [&](const pass& q) {
      if (!is_finite_at_zero(q)) return false;
      if (q.other == value_id::none) return true;
      const value& other = program_[q.other];
      if (other.scope == value_scope::call) return false;
      if (!axes_.has_experts(q.other))
        return other.shape.size() + *axes_.expert_axis(base) < program_[base].shape.size();
      return other.per_token() && axes_.expert_axis(q.other).has_value() &&
             axes_.head_axis(q.other).has_value() == axes_.head_axis(base).has_value();
    });
  }

  // Places that a token does not use hold 0, which must not become infinite or NaN there.
  bool is_finite_at_zero(const pass& q) const {
    if (axes_.fills_places()) return true;
    if (q.what == pass_kind::map) return keeps_zero(q.f) || is_bounded(q.f);
    if (q.what != pass_kind::divide) return true;
    const auto maker = axes_.index().producer(q.other);
    if (!maker || !is<pointwise_op>(program_.operations[*maker])) return false;
    const number_function& f = program_.operations[*maker].passes.back().f;
    return f.own == nullptr && f.fn == pointwise::at_least && f.parameter > 0;
  }
  static bool is_bounded(const number_function& f) {
    if (f.own != nullptr) return false;
    switch (f.fn) {
      case pointwise::log:
      case pointwise::inverse:
      case pointwise::inverse_sqrt:
      case pointwise::quotient: return false;
      default: return true;
    }
  }

  bool is_sample(const operation& o, const use& x, const use& table) const {
    if (!program_[x.value].per_token() || program_[x.value].selection) return false;
    const value& s = program_[axes_.selection()];
    if (s.shape.back() < machine_.sampled * s.rows() * s.expected) return false;
    const use selected = axes_.selection_for(o);
    const axis_labels lead =
        labels_where(selected.labels, [&](char c) { return has(table.labels, c); });
    const bool fits = o.out.labels == lead && is_table(selected, table) &&
                      table.labels.size() == lead.size() + x.labels.size();
    return fits && std::ranges::all_of(x.labels, [&](char c) {
             return std::ranges::count(x.labels, c) == 1 && has(table.labels, c) && !has(lead, c);
           });
  }

  bool is_expert_product(const operation& o, const use& x, const use& table) const {
    const char expert = o.out.labels[*axes_.expert_axis(o.out.value)];
    if (axes_.has_heads() || std::ranges::count(table.labels, expert) != 1) return false;
    if (!program_[x.value].per_token() || program_[x.value].selection) return false;
    bool sums = false;
    for (const char c : x.labels) sums |= !has(o.out.labels, c);
    return sums;
  }

  static bool keeps_zero(const number_function& f) {
    if (f.own != nullptr) return false;
    switch (f.fn) {
      case pointwise::negate:
      case pointwise::scale:
      case pointwise::relu:
      case pointwise::abs:
      case pointwise::sqrt:
      case pointwise::power:
      case pointwise::squared_relu:
      case pointwise::tanh:
      case pointwise::gelu:
      case pointwise::gelu_tanh:
      case pointwise::silu: return true;
      default: return false;
    }
  }
  static bool is_linear(const number_function& f) {
    return f.own == nullptr && (f.fn == pointwise::negate || f.fn == pointwise::scale);
  }

  bool passes_keep_zero(const operation& o) const {
    bool zero = zero_[o.in[0].value];
    const bool sums = is_sum_of_heads(o.in[0].value);
    for (const pass& q : o.passes) {
      const bool other = q.other != value_id::none && zero_[q.other];
      const bool other_sums = q.other != value_id::none && is_sum_of_heads(q.other);
      switch (q.what) {
        case pass_kind::map: zero = zero && (sums ? is_linear(q.f) : keeps_zero(q.f)); break;
        case pass_kind::add:
        case pass_kind::max:
        case pass_kind::min:
          zero = zero && other && (q.what == pass_kind::add || !axes_.has_heads());
          break;
        case pass_kind::multiply: zero = (zero || other) && !(sums && other_sums); break;
        case pass_kind::divide:
        case pass_kind::keep:
        case pass_kind::drop:
        case pass_kind::above: zero = zero && !other_sums; break;
      }
    }
    return zero;
  }

  bool is_zero(const operation& o) const {
    switch (form_of(o)) {
      case form::none:
      case form::sample: return false;
      case form::kept: return true;
      case form::pointwise: return passes_keep_zero(o);
      case form::relabelled:
      case form::expert_product: break;
    }
    bool zero = false;
    for (const use& u : o.in) zero |= zero_[u.value];
    return zero && !mixes_heads(o);
  }

  void find_zero() {
    std::fill(zero_.begin(), zero_.end(), false);
    for (const operation& o : program_.operations)
      if (!banned_[o.out.value]) zero_[o.out.value] = is_zero(o);
  }

  // Values that all their readers need at kept entries only; readers come first.
  void find_needed() {
    std::fill(needed_.begin(), needed_.end(), false);
    for (extent k = program_.operations.size(); k-- > 0;) {
      const operation& o = program_.operations[k];
      const value_id v = o.out.value;
      if (zero_[v] || axes_.index().is_result(v) || form_of(o) == form::none) continue;
      bool needed = true;
      for (const use& u : o.in) needed = needed && !is_sum_of_heads(u.value);
      for (const pass& q : o.passes)
        needed = needed && (q.other == value_id::none || !is_sum_of_heads(q.other));
      for (const extent r : axes_.index().readers(v))
        needed = needed && restricts(program_.operations[r], v);
      needed_[v] = needed;
    }
  }

  // True if the operation reads v at kept entries only.
  bool restricts(const operation& o, value_id v) const {
    if (is_compact(o.out.value)) return form_of(o) != form::none && form_of(o) != form::kept;
    if (!is<product_op, token_sum_op>(o) || has_weights(o) || !reads_rows(o)) return false;
    if (mixes_heads(o)) return false;
    if (is<token_sum_op>(o) && axes_.has_heads()) return false;
    if (is<product_op>(o) && axes_.has_experts(o.out.value)) return false;
    return std::ranges::any_of(o.in, [&](const use& u) {
      return u.value != v && zero_[u.value] && axes_.label_of(u) != 0;
    });
  }

  // Takes values out whose readers need them dense. Returns true if there was one.
  bool ban() {
    for (const operation& o : program_.operations) {
      const value_id v = o.out.value;
      if (!zero_[v] || is_scalar(v) || program_[v].selection) continue;
      bool fits = !axes_.index().is_result(v);
      for (const extent r : axes_.index().readers(v))
        fits = fits && takes_rows(program_.operations[r]);
      if (fits) continue;
      banned_[v] = true;
      return true;
    }
    return false;
  }
  bool takes_rows(const operation& o) const {
    if (is_compact(o.out.value)) return true;
    if (is<pointwise_op>(o)) return joins_rows_of_all(o);
    if (!is<product_op, reduce_op, token_sum_op>(o) || !reads_rows(o)) return false;
    if (is<token_sum_op>(o)) return !axes_.has_heads();
    if (program_[o.out.value].per_token() && axes_.has_experts(o.out.value)) return false;
    if (!has_weights(o)) return true;
    return weight_of(o) == extent{1} && !axes_.has_heads();
  }

  // True if the operation also reads rows of all experts, which are made anyway.
  bool joins_rows_of_all(const operation& o) const {
    const auto is_of_all = [&](value_id v) {
      return v != value_id::none && axes_.expert_axis(v) && program_[v].per_token() &&
             !is_scalar(v) && !is_compact(v);
    };
    return !axes_.has_heads() && program_[o.out.value].per_token() &&
           axes_.expert_axis(o.out.value) &&
           (is_of_all(o.in[0].value) ||
            std::ranges::any_of(o.passes, [&](const pass& q) { return is_of_all(q.other); }));
  }

  compact_axes axes_;
  const program& program_;
  const machine& machine_;
  list_by<value_id, bool> zero_, needed_, banned_;
  bool found_ = false;
};

}  // namespace fmoe::planner
