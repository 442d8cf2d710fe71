// SPDX-License-Identifier: MIT
// Contract: an einsum becomes products of two operands and sums of one, in the order that the
// search finds.
#pragma once

#include <vector>

#include <fmoe/planner/machine.hpp>
#include <fmoe/planner/mask.hpp>
#include <fmoe/planner/order.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

class pairwise_contraction {
 public:
  // `naive` multiplies the parameters with each other first. `sums_tokens` says that the result is
  // the sum over all tokens.
  pairwise_contraction(program& p, const machine& m, bool naive, bool sums_tokens)
      : program_(p),
        machine_(m),
        naive_(naive),
        sums_tokens_(sums_tokens) {}

  // Returns the product of all operands, summed over the labels that the result does not have.
  use sum(std::vector<use> in, const std::string& result) {
    for (use& u : in) u = single(u, in, result);
    if (naive_) materialise(in, result);
    return contract(std::move(in), result);
  }

  // Returns the sum without the mask, and an operation that computes the sum again where a pair is
  // left out.
  use masked(einsum_mask m, const std::vector<use>& in, const std::string& wanted) {
    m.check(in);
    if (m.left_out->empty()) return sum(in, wanted);
    const std::string result = m.orient(wanted);
    const extent before = program_.operations.size();
    use dense = sum(in, result);
    expects<value_error>(!program_[dense.value].is_constant(),
                         "[all_except] leaves no pair out of a sum of parameters only");
    const bool fresh =
        program_.operations.size() > before && program_.operations.back().out.value == dense.value;
    if (!fresh) dense = program_.make(reduce_op{}, {dense}, result);
    const use out = program_.make(exclude_op{std::move(m.left_out), std::move(m.labels), m.swapped},
                                  in, dense.labels);
    program_.operations.back().start = dense.value;
    return result == wanted ? out : program_.make(reduce_op{}, {out}, wanted);
  }

 private:
  bool per_token(const use& u) const { return program_[u.value].per_token(); }

  // Takes the diagonals of repeated labels, and sums over the labels that only this operand has,
  // and over the tokens if no other operand has any.
  use single(const use& u, const std::vector<use>& all, const std::string& result) {
    std::string keep;
    bool sums_tokens = sums_tokens_ && per_token(u);
    for (const use& other : all) sums_tokens &= &other == &u || !per_token(other);
    for (const char c : u.labels) {
      bool needed = has(result, c);
      for (const use& other : all) needed |= &other != &u && has(other.labels, c);
      if (needed && !has(keep, c)) keep += c;
    }
    if (sums_tokens) return token_sum({u}, keep);
    return keep == u.labels ? u : program_.make(reduce_op{}, {u}, keep);
  }

  // Returns the order of axes for a sum over tokens, which any order costs the same: the labels of
  // the hint last, if the last one is the last axis of an operand.
  static std::string liked(const std::string& labels, const std::string& hint, const use& left,
                           const use& right) {
    const std::string order = labels_where(labels, [&](char c) { return !has(hint, c); }) +
                              labels_where(hint, [&](char c) { return has(labels, c); });
    const auto ends = [&](const use& u) {
      return !u.labels.empty() && u.labels.back() == order.back();
    };
    return order.empty() || ends(left) || ends(right) ? order : labels;
  }

  use token_sum(std::vector<use> in, std::string labels) {
    const use out = program_.make(token_sum_op{}, std::move(in), std::move(labels));
    program_[out.value].scope = value_scope::call;
    return out;
  }

  // The naive plan multiplies the parameters first, from left to right, into one weight.
  void materialise(std::vector<use>& in, const std::string& result) {
    const auto parameter = [&](const use& u) { return program_[u.value].parameter; };
    while (std::ranges::count_if(in, parameter) > 1) {
      const auto a = std::ranges::find_if(in, parameter),
                 b = std::find_if(a + 1, in.end(), parameter);
      const use left = *a, right = *b;
      in.erase(b);
      in.erase(std::ranges::find_if(in, parameter));
      in.push_back(pair(left, right, in, result, result));
    }
  }

  // Returns the product of two operands, summed over the labels that neither the result nor
  // `others` need. Its axes are those of both operands, then those of the left one only, then those
  // of the right one only; each group is in the order of `hint` as far as that has them.
  use pair(use left, use right, const std::vector<use>& others, const std::string& result,
           const std::string& hint) {
    const value &l = program_[left.value], &r = program_[right.value];
    const auto needed = [&](char c) {
      return has(result, c) ||
             std::ranges::any_of(others, [&](const use& u) { return has(u.labels, c); });
    };
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
      const std::string a = own(left, right), b = own(right, left);
      if (a.empty() != b.empty()) return a.empty() ? repeats(left, right) : !repeats(right, left);
      // Vectors run along the last axis, and a constant that follows is packed for any order of
      // axes.
      const extent left_size = program_.size_of(left, a), right_size = program_.size_of(right, b);
      const bool left_is_narrow = left_size < machine_.narrow;
      const bool right_is_narrow = right_size < machine_.narrow;
      const bool goes_on = !l.is_constant() && !others.empty();
      if (goes_on && left_is_narrow != right_is_narrow) return right_is_narrow;
      const auto last = [&](const std::string& labels) {
        return labels.empty() ? 0 : hint.find(labels.back()) + 1;
      };
      return last(a) > last(b) && last(b) != 0;
    };
    if (swapped()) std::swap(left, right);
    const auto hinted = [&](const std::string& group) {
      return labels_where(hint, [&](char c) { return has(group, c); }) +
             labels_where(group, [&](char c) { return !has(hint, c); });
    };
    const std::string both =
        labels_where(left.labels, [&](char c) { return needed(c) && has(right.labels, c); });
    const std::string a = own(left, right), b = own(right, left);
    std::string labels = b.empty() ? labels_where(left.labels, needed) : both + a + hinted(b);
    if (b.empty() && labels.size() < left.labels.size()) labels = both + a;
    const value selection = program_[left.value];
    if (selection.selection && !program_[right.value].per_token() &&
        right.labels == left.labels.substr(left.labels.size() - 1) && labels == left.labels &&
        !naive_) {
      const use out =
          program_.make(rescale_op{}, {left, right}, std::move(labels), true, selection.keep);
      program_[out.value].expected = selection.expected;
      return out;
    }
    const bool sums_tokens =
        sums_tokens_ && program_[right.value].per_token() &&
        std::ranges::none_of(others, [&](const use& u) { return per_token(u); });
    if (sums_tokens) return token_sum({left, right}, liked(labels, hint, left, right));
    return program_.make(product_op{}, {left, right}, std::move(labels));
  }

  use contract(std::vector<use> in, const std::string& result) {
    if (in.size() == 1) {
      if (in[0].labels == result) return in[0];
      return program_.make(reduce_op{}, {in[0]}, result);
    }
    contraction_problem p{{}, result, {}, sums_tokens_};
    for (const use& u : in) {
      const value& v = program_[u.value];
      p.operands.push_back({u.labels, v.per_token(), v.parameter, v.expected, v.selection});
      for (const char c : u.labels) p.extents.emplace_back(c, program_.extent_of(u, c));
    }
    const auto order = find_order(p, machine_);
    std::vector<bool> used(in.size() + order.size(), false);
    for (const pairing& s : order) {
      const auto l = static_cast<extent>(s.left), r = static_cast<extent>(s.right);
      used[l] = used[r] = true;
      std::vector<use> others;
      for (extent i = 0; i < in.size(); ++i)
        if (!used[i]) others.push_back(in[i]);
      in.push_back(pair(in[l], in[r], others, result, hint(order, in, in.size(), result)));
    }
    return in.back();
  }

  // Returns the best order of axes for the constant with which number `made` will be contracted.
  static std::string hint(const std::vector<pairing>& order, const std::vector<use>& in,
                          extent made, const std::string& result) {
    for (const pairing& s : order) {
      const auto l = static_cast<extent>(s.left), r = static_cast<extent>(s.right);
      if (l == made || r == made) {
        const extent partner = l == made ? r : l;
        return partner < in.size() ? in[partner].labels : result;
      }
    }
    return result;
  }

  program& program_;
  const machine& machine_;
  bool naive_, sums_tokens_;
};

}  // namespace fmoe::planner
