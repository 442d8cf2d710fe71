// SPDX-License-Identifier: MIT
// Runs plans of graphs directly on the executor, for any ranges of rows, in memory that shows what
// was never written.
#pragma once

#include <cstring>
#include <limits>
#include <stdexcept>

#include <fmoe/backend/cpu/executor.hpp>
#include <fmoe/backend/cpu/machine.hpp>
#include <fmoe/planner/planner.hpp>

#include "oracle.hpp"

namespace fmoe::test {

// Computes rows of the result of a plan of `tokens` rows in calls of `split` rows (at most the
// plan's tile). Arena and result hold NaN before, and a guard behind the arena is checked.
template <class T>
class runner {
 public:
  runner(const ir::graph& g, ir::node_id root, extent tokens, const planner::plan_options& options);

  const cpu::plan& steps() const { return run_.steps(); }

  std::vector<T> rows(extent first, extent count, extent split) const {
    constexpr extent guard = 64;
    const T nan = std::numeric_limits<T>::quiet_NaN();
    const memory block((steps().arena + guard) * sizeof(T));
    T* const arena = reinterpret_cast<T*>(block.data());
    std::vector<T> result(count * width_, nan);
    for (extent done = 0; done < count; done += split) {
      std::fill_n(arena, steps().arena + guard, nan);
      call(result.data() + done * width_, first + done, std::min(split, count - done), arena);
      const auto is_nan = [](T x) { return std::isnan(x); };
      if (!std::all_of(arena + steps().arena, arena + steps().arena + guard, is_nan))
        throw std::logic_error("a step wrote behind the arena");
    }
    return result;
  }

  // Returns all rows, in calls of the plan's tile, or the whole result of an expression without
  // tokens.
  std::vector<T> all(extent tokens) const {
    return steps().tokens ? rows(0, tokens, steps().tile) : rows(0, 1, 1);
  }

 private:
  void call(T* result, extent first, extent count, T* arena) const;

  cpu::executor<T, cpu::native_arch> run_;
  extent width_;
};

// It is outside the class, for the extern template in precompiled.hpp.
template <class T>
runner<T>::runner(const ir::graph& g, ir::node_id root, extent tokens,
                  const planner::plan_options& options)
    : run_(planner::make_plan(g, root, tokens, cpu::machine<T, cpu::native_arch>(options)), g),
      width_(element_count(steps().results[0])) {}

template <class T>
void runner<T>::call(T* result, extent first, extent count, T* arena) const {
  cpu::binding<T> bound;
  const cpu::rows_of<T> rows{result, width_};
  bound.results = {&rows, 1};
  run_.run(bound, first, count, arena);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace fmoe::test
