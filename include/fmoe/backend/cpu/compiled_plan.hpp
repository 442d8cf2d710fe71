// SPDX-License-Identifier: MIT
// A plan bound to its weights, with memory for a number of callers at once: const, safe to call
// from many threads, and a call allocates nothing. Declared here without its members, so that what
// lies above compiles without planner, xsimd and oneTBB; cpu/plan_runner.hpp defines them.
#pragma once

#include <memory>
#include <span>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/planner/options.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class plan_runner;

// In the arithmetic of T, with the kernels of Arch, the native level of the translation unit that
// defines the members.
template <class T, class Arch>
class compiled_plan {
 public:
  // For up to `tokens` rows. Throws shape_error or value_error where the expression cannot be
  // computed.
  compiled_plan(const ir::graph& g, const ir::node_list& results, extent tokens, extent callers,
                const planner::plan_options& options);
  compiled_plan(compiled_plan&&) noexcept;
  ~compiled_plan();

  // The steps alone, without weights.
  static plan plan_of(const ir::graph& g, const ir::node_list& results, extent tokens,
                      const planner::plan_options& options);

  const plan& steps() const;

  // The results[t, ...] for `tokens` rows of the arguments; shapes and types are the plan's. Waits
  // while all callers' memory is in use.
  void operator()(std::span<const bound_array> arguments, std::span<const bound_array> results,
                  extent tokens) const;

 private:
  std::unique_ptr<const plan_runner<T, Arch>> runner_;
};

}  // namespace fmoe::cpu
