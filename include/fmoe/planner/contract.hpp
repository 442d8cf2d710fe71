// SPDX-License-Identifier: MIT
// Contract: an einsum of one or two operands, as expand leaves them, becomes an operation.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/planner/machine.hpp>
#include <fmoe/planner/mask.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

class contraction {
 public:
  // A naive plan rescales no selection. `sums_tokens` says that the result is the sum over all
  // tokens.
  contraction(program& p, const machine& m, bool naive, bool sums_tokens)
      : program_(p),
        machine_(m),
        naive_(naive),
        sums_tokens_(sums_tokens) {}

  // Returns the operand without the labels that the result does not have, which are summed, and its
  // diagonal if it has a label twice.
  use one(const use& u, const axis_labels& result) {
    axis_labels keep;
    for (const char c : u.labels)
      if (has(result, c) && !has(keep, c)) keep += c;
    if (sums_tokens_) return token_sum({u}, keep);
    return keep == u.labels ? u : program_.make(reduce_op{}, {u}, keep);
  }

  // Returns the sum without the mask, computed again where a pair is left out. `unmasked` is that
  // sum, which nothing else reads; `wanted` names the axes of the result.
  use masked(einsum_mask m, vector<use> in, const use& unmasked, const axis_labels& wanted) {
    expects<value_error>(!program_[unmasked.value].is_constant(),
                         "[all_except] leaves no pair out of a sum of parameters only");
    const use out = program_.make(exclude_op{std::move(m.left_out), std::move(m.labels), m.swapped},
                                  std::move(in), unmasked.labels);
    program_.operations.back().start = unmasked.value;
    return out.labels.size() == wanted.size() ? out : program_.make(reduce_op{}, {out}, wanted);
  }

  // Returns the product of two operands, summed over the labels that the result does not have. Its
  // axes are those of both operands, then those of the left one only, then those of the right one
  // only; each group is in the order of `hint` as far as that has them. `goes_on` says that the
  // result is an operand of the next pair of an einsum.
  use pair(use left, use right, const axis_labels& result, const axis_labels& hint, bool goes_on) {
    const value &l = program_[left.value], &r = program_[right.value];
    const auto needed = [&](char c) { return has(result, c); };
    const auto own = [&](const use& u, const use& other) {
      return labels_where(u.labels, [&](char c) { return needed(c) && !has(other.labels, c); });
    };
    // True for a Hadamard product: x repeats along the leading labels of y, and nothing is summed.
    const auto repeats = [&](const use& x, const use& y) {
      return !x.labels.empty() && y.labels.ends_with(x.labels) &&
             std::ranges::all_of(y.labels, needed);
    };
    // The activation is the left operand of a product with a constant. Of two activations, the one
    // whose own labels stay innermost is the right operand, or the one that repeats.
    const auto swapped = [&] {
      if (r.scope != l.scope) return r.scope > l.scope;
      if (l.selection != r.selection) return r.selection;
      const axis_labels a = own(left, right), b = own(right, left);
      if (a.empty() != b.empty()) return a.empty() ? repeats(left, right) : !repeats(right, left);
      // Vectors run along the last axis, and a constant that follows is packed for any order of
      // axes.
      const extent left_size = program_.size_of(left, a), right_size = program_.size_of(right, b);
      const bool left_is_narrow = left_size < machine_.narrow;
      const bool right_is_narrow = right_size < machine_.narrow;
      const bool is_packed_next = goes_on && !l.is_constant();
      if (is_packed_next && left_is_narrow != right_is_narrow) return right_is_narrow;
      const auto last = [&](const axis_labels& labels) {
        return labels.empty() ? 0 : hint.find(labels.back()) + 1;
      };
      return last(a) > last(b) && last(b) != 0;
    };
    if (swapped()) std::swap(left, right);
    const auto hinted = [&](const axis_labels& group) {
      return labels_where(hint, [&](char c) { return has(group, c); }) +
             labels_where(group, [&](char c) { return !has(hint, c); });
    };
    const axis_labels both =
        labels_where(left.labels, [&](char c) { return needed(c) && has(right.labels, c); });
    const axis_labels a = own(left, right), b = own(right, left);
    axis_labels labels = b.empty() ? labels_where(left.labels, needed) : both + a + hinted(b);
    if (b.empty() && labels.size() < left.labels.size()) labels = both + a;
    const value selection = program_[left.value];
    const auto are_factors = [&] {
      return right.labels == left.labels ||
             right.labels == left.labels.substr(left.labels.size() - 1);
    };
    const bool rescales = selection.selection && !program_[right.value].per_token() &&
                          labels == left.labels && are_factors();
    if (rescales && !naive_) {
      const use out =
          program_.make(rescale_op{}, {left, right}, std::move(labels), true, selection.keep);
      program_[out.value].expected = selection.expected;
      return out;
    }
    if (sums_tokens_ && selects_rows(left, right)) {
      const axis_labels columns = right.labels + left.labels;
      return token_sum({left, right}, result == columns ? columns : left.labels + right.labels);
    }
    if (sums_tokens_) return token_sum({left, right}, liked(labels, hint, left, right));
    return program_.make(product_op{}, {left, right}, std::move(labels));
  }

 private:
  // Returns the order of axes for a sum over tokens, which any order costs the same: the labels of
  // the hint last, if the last one is the last axis of an operand.
  static axis_labels liked(const axis_labels& labels, const axis_labels& hint, const use& left,
                           const use& right) {
    const axis_labels order = labels_where(labels, [&](char c) { return !has(hint, c); }) +
                              labels_where(hint, [&](char c) { return has(labels, c); });
    const auto ends = [&](const use& u) {
      return !u.labels.empty() && u.labels.back() == order.back();
    };
    return order.empty() || ends(left) || ends(right) ? order : labels;
  }

  // True if tokens select one row each of what they are multiplied with.
  bool selects_rows(const use& left, const use& right) const {
    const auto is_single = [](const axis_labels& labels) { return labels.size() == 1; };
    return program_[left.value].selection && is_single(left.labels) &&
           !has(right.labels, left.labels[0]);
  }

  use token_sum(vector<use> in, axis_labels labels) {
    const use out = program_.make(token_sum_op{}, std::move(in), std::move(labels));
    program_[out.value].scope = value_scope::call;
    return out;
  }

  program& program_;
  const machine& machine_;
  bool naive_, sums_tokens_;
};

}  // namespace fmoe::planner
