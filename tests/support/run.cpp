// SPDX-License-Identifier: MIT
// The runner of run.hpp, for float and double.
#include "run.hpp"

#include <cmath>
#include <limits>
#include <stdexcept>

#include <fmoe/backend/cpu/executor.hpp>

#include "limits.hpp"
#include "plans.hpp"

namespace fmoe::test {

template <class T>
struct runner<T>::bound_plan {
  cpu::executor<T, cpu::native_arch> execute;
  extent width;

  bound_plan(const planner::program& p, extent tokens, const planner::plan_options& how)
      : execute(make_plan(p, tokens, how), p.leaves),
        width(execute.steps().results[0].size()) {}
};

template <class T>
runner<T>::runner(const ir::graph& g, ir::node_id root, extent tokens,
                  const planner::plan_options& how)
    : run_(std::make_unique<const bound_plan>(planned(g, {root}, on_this_cpu<T>(how)), tokens,
                                              on_this_cpu<T>(how))) {}

template <class T>
runner<T>::~runner() = default;

template <class T>
const plan::step_plan& runner<T>::steps() const {
  return run_->execute.steps();
}

// Memory that holds NaN, with a guard behind it.
template <class T>
class guarded {
 public:
  explicit guarded(extent size) : size_(size), block_((size + guard) * sizeof(T)) { clear(); }
  T* data() { return reinterpret_cast<T*>(block_.data()); }
  void clear() { std::fill_n(data(), size_ + guard, std::numeric_limits<T>::quiet_NaN()); }
  bool holds() {
    return std::all_of(data() + size_, data() + size_ + guard, [](T x) { return std::isnan(x); });
  }

 private:
  static constexpr extent guard = 64;
  extent size_;
  memory block_;
};

template <class T>
std::vector<T> runner<T>::rows(extent first, extent count, extent split) const {
  constexpr extent threads = 7;  // whose parts a stage of the whole call has
  const extent width = run_->width, stride = steps().results[0].per_token ? width : 0;
  guarded<T> arena(steps().arena), call(steps().call * count + steps().once);
  std::vector<T> result((stride == 0 && width != 0 ? 1 : count) * width,
                        std::numeric_limits<T>::quiet_NaN());
  for (extent stage = 0; stage < steps().stages.size(); ++stage) {
    if (steps().stages[stage].per_call) {
      const cpu::rows_of<T> place{result.data(), 0};
      const cpu::binding<T> bound{{}, {&place, 1}, call.data(), count};
      for (extent part = run_->execute.parts(stage, count, threads); part-- > 0;)
        run_->execute.run_part(bound, count, arena.data(), stage, part, threads);
      continue;
    }
    for (extent done = 0; done < count; done += split) {
      arena.clear();
      const cpu::rows_of<T> place{result.data() + done * stride, stride};
      const cpu::binding<T> bound{{}, {&place, 1}, call.data(), count};
      run_->execute.run(bound, first + done, std::min(split, count - done), arena.data(), stage);
      if (!arena.holds()) throw std::logic_error("a step wrote behind the arena");
    }
  }
  if (!call.holds()) throw std::logic_error("a step wrote behind the call's memory");
  return result;
}

template class runner<float>;
template class runner<double>;

}  // namespace fmoe::test
