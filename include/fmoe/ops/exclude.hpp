// SPDX-License-Identifier: MIT
// Exclude: the sum that it starts from, computed again without the pairs where it has one.
#pragma once

#include <set>
#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

// For each token: c[group] = sum over the kept places of the other axis, for groups with a pair
// left out.
struct exclude_step {
  static constexpr extent most_operands = 8;
  struct axis {
    extent length, c;
    vector<extent> strides;  // by operand
    bool operator==(const axis&) const = default;
  };
  std::string text;
  vector<view> operands{};
  // The number of operands, the first ones, without an axis of their own in the result.
  extent factors = 0;
  view c;  // holds the sum of all
  axis group, other;
  // Axes that only factors sum over, other summed axes, and axes of the result, whose last one is
  // the vector.
  vector<axis> inner{}, outer{}, free{};
  // The groups, and the end of each group's places in the list.
  vector<extent> groups{}, ends{};
  vector<extent> left_out{};  // places of the other axis, ascending in each group
  // One operand has an axis of its own in the result, which is contiguous in both.
  bool is_row = false;

  const char* name() const { return "exclude"; }
  void list_accesses(auto& to) const {
    for (const view& v : operands) to.read(v);
    to.update(c);
  }
  void describe(auto& text_of, const auto&) const {
    text_of << "  " << left_out.size() << " pairs in " << groups.size() << " of " << group.length
            << ", the sum made again";
  }
  double flops(double tokens) const {
    double each = 8 * tokens;
    for (const auto* axes : {&inner, &outer, &free})
      for (const axis& a : *axes) each *= static_cast<double>(a.length);
    return each * static_cast<double>(groups.size() * other.length - left_out.size());
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

struct exclude_op {
  pair_set left_out{};
  axis_labels masked{};  // the labels of a pair: the first one is summed, whatever its place in a
                         // pair
  bool swapped = false;  // the first label is the second one of a pair

  const char* name() const { return "exclude"; }

  void interpret(auto& in, const auto& o) const {
    const std::set<index_pair> pairs(left_out->begin(), left_out->end());
    const auto is_kept = [&](const auto& place) {
      const auto at = [&](char label) { return place[static_cast<unsigned char>(label)]; };
      index_pair p{at(masked[0]), at(masked[1])};
      if (swapped) std::swap(p[0], p[1]);
      return !pairs.contains(p);
    };
    in.each_row(o, [&](auto, auto y, extent i) { in.sum_row(o, i, y.data(), is_kept); });
  }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    auto made = to.exclusion_of(o);
    plan::exclude_step s = made.take();
    s.text = to.text(o);
    s.c = to.whole(o.out.value);
    for (const auto* u : made.operands) s.operands.push_back(to.whole(u->value));
    steps.push_back(std::move(s));
  }
};

}  // namespace fmoe::planner
