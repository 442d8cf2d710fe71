// SPDX-License-Identifier: MIT
// Tunes a program on the machine: it runs the plans that are predicted to be the quickest, and
// keeps the shape of the one that is.
#pragma once

#include <chrono>
#include <limits>
#include <span>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/schedule/choose.hpp>
#include <fmoe/base/random.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::cpu {

// Arrays for a call of a program with all its tokens: random numbers, and memory for the results.
template <class T>
class sample_call {
 public:
  explicit sample_call(const planner::program& p) {
    random_stream numbers(1);
    for (const planner::value& v : p.values) {
      if (!v.leaf || p.leaves[*v.leaf].argument < 0) continue;
      const auto at = static_cast<extent>(p.leaves[*v.leaf].argument);
      arguments.resize(std::max(arguments.size(), at + 1));
      arguments[at] = bound(p, v);
      const detail::array_view& x = arguments[at].array;
      for (T& e : std::span(static_cast<T*>(x.data), x.row_size(x.rank)))
        e = static_cast<T>(numbers.uniform());
    }
    for (const planner::value_id r : p.results) results.push_back(bound(p, p[r]));
  }

  vector<detail::bound_array> arguments, results;

 private:
  detail::bound_array bound(const planner::program& p, const planner::value& v) {
    vector<extent> shape = v.shape;
    if (v.per_token()) shape.insert(shape.begin(), p.token_count);
    blocks_.emplace_back(std::max<extent>(1, element_count(shape)) * sizeof(T));
    T* const data = reinterpret_cast<T*>(blocks_.back().data());
    return {view_at<all>(data, shape), v.shape.size()};
  }

  vector<detail::memory> blocks_;
};

// Returns the shape of the quickest plan by a clock. make(plan) returns something with
// run(call_arrays).
template <class T, class Clock = std::chrono::steady_clock, class Make>
plan_shape tuned(const planner::program& p, const planner::plan_options& how, const Make& make) {
  constexpr extent most = 8;
  constexpr double too_slow = 1.5, enough = 0.25;  // times the least prediction; seconds
  constexpr int warm = 1, rounds = 9;
  shape_search search(p, how);
  sample_call<T> call(p);
  // All plans run in turn, so that a slower moment of the machine meets all of them.
  const auto quickest = [&](const vector<plan_shape>& shapes) {
    if (shapes.size() == 1) return shapes[0];
    vector<decltype(make(search.with(shapes[0])))> runs;
    for (const plan_shape& s : shapes) runs.push_back(make(search.with(s)));
    vector<double> least(shapes.size(), std::numeric_limits<double>::infinity());
    double all = 0;
    for (int round = 0; round < warm + rounds && (round <= warm + 2 || all < enough); ++round)
      for (extent i = 0; i < runs.size(); ++i) {
        const auto start = Clock::now();
        runs[i]->run(call_arrays{call.arguments, call.results, p.token_count});
        const std::chrono::duration<double> took = Clock::now() - start;
        if (round >= warm) least[i] = std::min(least[i], took.count());
        all += took.count();
      }
    return shapes[static_cast<extent>(std::ranges::min_element(least) - least.begin())];
  };
  vector<plan_shape> shapes;
  const vector<shaped_plan> plans = search.all();
  for (extent i = 0; i < plans.size() && i < most; ++i)
    if (plans[i].seconds <= too_slow * plans[0].seconds) shapes.push_back(plans[i].shape);
  shapes = {quickest(shapes)};
  // No prediction knows these.
  const auto try_each = [&](auto member, std::initializer_list<extent> values) {
    for (const extent value : values) {
      shapes.push_back(shapes[0]);
      shapes.back().*member = value;
    }
  };
  try_each(&plan_shape::own_ahead, {0, 4096});
  try_each(&plan_shape::side_by_side, {1, 2});
  return quickest(shapes);
}

}  // namespace fmoe::cpu
