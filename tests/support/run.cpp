// SPDX-License-Identifier: MIT
// The members of run.hpp, for float and double.
#include "run.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmoe/backend/cpu/executor.hpp>
#include <fmoe/backend/cpu/plan/planning.hpp>
#include <fmoe/planner/planner.hpp>

#include "limits.hpp"

namespace fmoe::test {

template <class T>
struct runner<T>::bound_plan {
  cpu::executor<T, cpu::native_arch> execute;
  extent width;

  bound_plan(const planner::program& p, extent tokens, const planner::plan_options& how)
      : execute(cpu::make_plan(p, tokens, how), p.leaves),
        width(element_count(execute.steps().results[0])) {}
};

template <class T>
runner<T>::runner(const ir::graph& g, ir::node_id root, extent tokens,
                  const planner::plan_options& how)
    : run_(std::make_unique<const bound_plan>(planner::lower(g, root, on_this_cpu<T>(how)), tokens,
                                              on_this_cpu<T>(how))) {}

template <class T>
runner<T>::~runner() = default;

template <class T>
const cpu::plan& runner<T>::steps() const {
  return run_->execute.steps();
}

template <class T>
std::vector<T> runner<T>::rows(extent first, extent count, extent split) const {
  constexpr extent guard = 64;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const extent width = run_->width, arena_size = steps().arena;
  const memory block((arena_size + guard) * sizeof(T));
  T* const arena = reinterpret_cast<T*>(block.data());
  std::vector<T> result(count * width, nan);
  for (extent done = 0; done < count; done += split) {
    std::fill_n(arena, arena_size + guard, nan);
    const cpu::rows_of<T> place{result.data() + done * width, width};
    cpu::binding<T> bound;
    bound.results = {&place, 1};
    run_->execute.run(bound, first + done, std::min(split, count - done), arena);
    const auto is_nan = [](T x) { return std::isnan(x); };
    if (!std::all_of(arena + arena_size, arena + arena_size + guard, is_nan))
      throw std::logic_error("a step wrote behind the arena");
  }
  return result;
}

template class runner<float>;
template class runner<double>;

}  // namespace fmoe::test
