// SPDX-License-Identifier: MIT
// Order: the search for the pairs in which the operands of an einsum are contracted. Up to 8
// operands it is exact, by dynamic programming over the subsets of operands. Above 8, it first
// contracts rows with the parameter that only they share labels with; the rest is exact again, or
// greedy. Parameters are never contracted only with each other, so the cheapest order of a
// factorized layer is its factorized forward pass.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::planner {

struct contraction_operand {
  axis_labels labels;
  bool tokens = true;      // one row for each token
  bool parameter = false;  // made from parameters only
  extent keep = 0;         // nonzero entries of a selection
  bool selection = false;  // a selection along its last label
};

struct contraction_problem {
  vector<contraction_operand> operands;
  axis_labels result;
  vector<std::pair<char, extent>> extents;
  bool sums_tokens = false;  // the result is the sum over all tokens
};

// Operands are numbered in their order; step i makes number operands.size() + i.
struct pairing {
  extent left, right;
  bool operator==(const pairing&) const = default;
};

class order_search {
 public:
  static constexpr extent exact_limit = 8;

  order_search(const contraction_problem& p, const machine& m) : problem_(p), machine_(m) {
    for (const auto& [c, e] : p.extents)
      extent_[static_cast<unsigned char>(c) & 127u] = static_cast<double>(e);
    all_parameters_ = std::ranges::all_of(p.operands, [](const auto& o) { return o.parameter; });
    for (const auto& o : p.operands) {
      const label_set selected = o.selection ? bit(o.labels.back()) : 0;
      numbers_.push_back(parts_.size());
      parts_.push_back({.labels = mask(o.labels),
                        .tokens = o.tokens,
                        .parameter = o.parameter,
                        .selected = selected,
                        .keep = static_cast<double>(std::max<extent>(1, o.keep)),
                        .operands = label_set{1} << parts_.size()});
    }
    operands_ = parts_;
  }

  vector<pairing> run() {
    if (parts_.size() > exact_limit) absorb();
    if (parts_.size() <= exact_limit) exact();
    else greedy();
    return steps_;
  }

 private:
  using label_set = std::uint64_t;

  struct part {  // the contraction of a subset of the operands
    label_set labels;
    bool tokens, parameter;
    label_set selected = 0;  // the label of which only `keep` entries count
    double keep = 0;
    std::uint64_t operands;
  };

  // 'A' is bit 1 and 'a' bit 33: 64 below their codes.
  static label_set bit(char c) { return label_set{1} << (c - 64); }
  static label_set mask(std::string_view labels) {
    label_set m = 0;
    for (const char c : labels) m |= bit(c);
    return m;
  }
  double volume(label_set m, const part* selection = nullptr) const {
    double v = 1;
    for (; m != 0; m &= m - 1) {
      const label_set low = m & (~m + 1);
      const int i = std::countr_zero(low);
      const bool kept = selection != nullptr && low == selection->selected;
      v *= kept ? selection->keep : extent_[static_cast<extent>(i) + 64];
    }
    return v;
  }

  // `together` are the parts that the result is made of. The result has the labels that the whole
  // result or another part still has. A selection whose label others have, too, stays a selection.
  part contract(const part& a, const part& b, label_set together) const {
    part r{.labels = (a.labels | b.labels) & needed_outside(together),
           .tokens = (a.tokens || b.tokens) && tokens_needed_outside(together),
           .parameter = a.parameter && b.parameter,
           .operands = a.operands | b.operands};
    for (extent i = 0; i < operands_.size() && r.selected == 0; ++i) {
      const part& kept = operands_[i];
      if ((r.operands >> i & 1) == 0 || (kept.selected & r.labels) == 0) continue;
      for (extent j = 0; j < operands_.size(); ++j) {
        const bool meets = (r.operands >> j & 1) != 0 && (operands_[j].labels & kept.selected) != 0;
        if (j == i || !meets) continue;
        r.selected = kept.selected;
        r.keep = kept.keep;
      }
    }
    return r;
  }
  double cost(const part& a, const part& b, const part& r) const {
    if (r.parameter && !all_parameters_) return std::numeric_limits<double>::infinity();
    const double rows = a.tokens || b.tokens ? machine_.rows : 1, stored = r.tokens ? 1 : 1 / rows;
    const double size = volume(r.labels, &r);
    const bool is_crowded = size > static_cast<double>(machine_.crowded);
    const part* selection = a.selected != 0 ? &a : b.selected != 0 ? &b : nullptr;
    return rows * (2 * volume(a.labels | b.labels, selection) +
                   stored * machine_.flops_per_byte * 4 * size *
                       (is_crowded ? machine_.crowded_factor : 1));
  }

  bool tokens_needed_outside(label_set operands) const {
    if (!problem_.sums_tokens) return true;
    for (extent i = 0; i < parts_.size(); ++i)
      if ((operands >> i & 1) == 0 && parts_[i].tokens) return true;
    return false;
  }
  label_set needed_outside(label_set operands) const {
    label_set m = mask(problem_.result);
    for (extent i = 0; i < parts_.size(); ++i)
      if ((operands >> i & 1) == 0) m |= parts_[i].labels;
    return m;
  }

  // Takes step (a, b) and puts its result in the place of a.
  void join(extent a, extent b, const part& made) {
    steps_.push_back({numbers_[a], numbers_[b]});
    parts_[a] = made;
    numbers_[a] = problem_.operands.size() + steps_.size() - 1;
    parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(b));
    numbers_.erase(numbers_.begin() + static_cast<std::ptrdiff_t>(b));
  }

  // Contracts rows with a parameter if it is the only other operand with their labels: these are
  // the a U and z V of every level of a factorized layer. No other operand could use those labels,
  // and the result has no more numbers than the parameter.
  void absorb() {
    for (extent i = 0; i < parts_.size();) {
      const label_set labels = parts_[i].labels;
      extent partner = parts_.size();
      bool alone = !parts_[i].parameter && (labels & mask(problem_.result)) == 0;
      for (extent j = 0; j < parts_.size(); ++j) {
        if (j == i || (parts_[j].labels & labels) == 0) continue;
        alone = alone && partner == parts_.size() && parts_[j].parameter &&
                (labels & ~parts_[j].labels) == 0;
        partner = j;
      }
      if (alone && partner < parts_.size()) {
        const label_set both = label_set{1} << i | label_set{1} << partner;
        join(i, partner, contract(parts_[i], parts_[partner], both));
        i = 0;
      } else {
        ++i;
      }
    }
  }

  void exact() {
    const extent n = parts_.size();
    const label_set full = (label_set{1} << n) - 1;
    vector<part> best_part(full + 1);
    vector<double> best(full + 1, std::numeric_limits<double>::infinity());
    vector<label_set> split(full + 1, 0);
    for (label_set set = 1; set <= full; ++set) {
      if (std::has_single_bit(set)) {
        best_part[set] = parts_[static_cast<extent>(std::countr_zero(set))];
        best[set] = 0;
        continue;
      }
      for (label_set left = (set - 1) & set; left > (set ^ left); left = (left - 1) & set) {
        const label_set right = set ^ left;
        if (best[left] + best[right] == std::numeric_limits<double>::infinity()) continue;
        const part r = contract(best_part[left], best_part[right], set);
        const double c = best[left] + best[right] + cost(best_part[left], best_part[right], r);
        if (c >= best[set]) continue;
        best[set] = c;
        split[set] = left;
        best_part[set] = r;
      }
    }
    if (n > 1) emit(split, full);
  }

  extent emit(const vector<label_set>& split, label_set set) {
    if (std::has_single_bit(set)) return numbers_[static_cast<extent>(std::countr_zero(set))];
    const extent left = emit(split, split[set]), right = emit(split, set ^ split[set]);
    steps_.push_back({left, right});
    return problem_.operands.size() + steps_.size() - 1;
  }

  void greedy() {
    while (parts_.size() > 1) {
      double best = std::numeric_limits<double>::infinity();
      extent a = 0, b = 1;
      part made{};
      for (extent i = 0; i < parts_.size(); ++i)
        for (extent j = i + 1; j < parts_.size(); ++j) {
          const part r = contract(parts_[i], parts_[j], label_set{1} << i | label_set{1} << j);
          const double before = volume(parts_[i].labels) + volume(parts_[j].labels);
          const double c = cost(parts_[i], parts_[j], r) - machine_.flops_per_byte * 4 * before;
          if (c >= best) continue;
          best = c;
          a = i;
          b = j;
          made = r;
        }
      join(a, b, made);
    }
  }

  const contraction_problem& problem_;
  const machine& machine_;
  std::array<double, 128> extent_{};
  bool all_parameters_;
  vector<part> operands_;   // each by itself
  vector<part> parts_;      // operands and results that are not contracted yet
  vector<extent> numbers_;  // numbers of the parts
  vector<pairing> steps_;
};

inline vector<pairing> find_order(const contraction_problem& p, const machine& m = {}) {
  return order_search(p, m).run();
}

}  // namespace fmoe::planner
