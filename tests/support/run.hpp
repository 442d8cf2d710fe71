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

// Computes rows of the result of a plan of `tokens` rows in tiles of `split` rows (at most the
// plan's tile); `unknown` tokens are as many as the inputs have. Arena, the call's memory and the
// result hold NaN before, and a guard behind the arena and the call's memory is checked. A plan of
// several stages is run whole.
template <class T>
class runner {
 public:
  runner(const ir::graph& g, ir::node_id root, extent tokens, const planner::plan_options& options);

  const cpu::plan& steps() const { return run_.steps(); }

  bool has_stages() const { return steps().stages.size() > 1 || steps().stages[0].per_call; }

  std::vector<T> rows(extent first, extent count, extent split) const {
    const bool per_token = steps().results[0].per_token;
    guarded arena(steps().arena), call(steps().call * count + steps().once);
    std::vector<T> result((per_token ? count : 1) * width_, nan);
    for (extent stage = 0; stage < steps().stages.size(); ++stage) {
      if (steps().stages[stage].per_call) {
        whole(result.data(), count, arena.data(), call.data(), stage);
        continue;
      }
      for (extent done = 0; done < count; done += split) {
        arena.clear();
        T* const to = result.data() + (per_token ? done * width_ : 0);
        tile(to, first + done, std::min(split, count - done), arena.data(), call.data(), count,
             stage);
        if (!arena.holds()) throw std::logic_error("a step wrote behind the arena");
      }
    }
    if (!call.holds()) throw std::logic_error("a step wrote behind the call's memory");
    return result;
  }

  // Returns all rows, in tiles of the plan's size, or the whole result of an expression without
  // tokens.
  std::vector<T> all() const { return all(steps().token_count); }
  std::vector<T> all(extent tokens) const {
    return steps().tokens ? rows(0, tokens, steps().tile) : rows(0, 1, 1);
  }

 private:
  static constexpr T nan = std::numeric_limits<T>::quiet_NaN();

  class guarded {
   public:
    explicit guarded(extent size) : size_(size), block_((size + guard) * sizeof(T)) { clear(); }
    T* data() { return reinterpret_cast<T*>(block_.data()); }
    void clear() { std::fill_n(data(), size_ + guard, nan); }
    bool holds() {
      return std::all_of(data() + size_, data() + size_ + guard, [](T x) { return std::isnan(x); });
    }

   private:
    static constexpr extent guard = 64;
    extent size_;
    memory block_;
  };

  void tile(T* result, extent first, extent count, T* arena, T* call, extent call_rows,
            extent stage) const;
  void whole(T* result, extent tokens, T* arena, T* call, extent stage) const;

  cpu::executor<T, cpu::native_arch> run_;
  extent width_;
};

// It is outside the class, for the extern template in precompiled.hpp.
template <class T>
runner<T>::runner(const ir::graph& g, ir::node_id root, extent tokens,
                  const planner::plan_options& options)
    : run_(planner::make_plan(g, root, tokens, cpu::machine<T, cpu::native_arch>(options)), g),
      width_(steps().results[0].size()) {}

template <class T>
void runner<T>::tile(T* result, extent first, extent count, T* arena, T* call, extent call_rows,
                     extent stage) const {
  const cpu::rows_of<T> rows{result, steps().results[0].per_token ? width_ : 0};
  run_.run({{}, {&rows, 1}, call, call_rows}, first, count, arena, stage);
}

// In the parts that seven threads would have.
template <class T>
void runner<T>::whole(T* result, extent tokens, T* arena, T* call, extent stage) const {
  constexpr extent threads = 7;
  const cpu::rows_of<T> rows{result, 0};
  const extent parts = run_.parts(stage, tokens, threads);
  for (extent part = parts; part-- > 0;)
    run_.run_part({{}, {&rows, 1}, call, tokens}, tokens, arena, stage, part, threads);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace fmoe::test
