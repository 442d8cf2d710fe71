// SPDX-License-Identifier: MIT
// The CPU's backend: it plans, and the kernels of a level run what it has planned.
#pragma once

#include <fmoe/backend/cpu/host.hpp>
#include <fmoe/backend/cpu/level_kernels.hpp>
#include <fmoe/backend/cpu/schedule/planning.hpp>
#include <fmoe/backend/cpu/tune.hpp>
#include <fmoe/base/time_text.hpp>
#include <fmoe/plan/print.hpp>

#if defined(FMOE_DISPATCH)
#include <fmoe/backend/cpu/dispatch-inl.hpp>
#endif

namespace fmoe::cpu {

class host_backend final : public backend {
 public:
  host_backend(dtype type, const level_kernels& kernels) : type_(type), kernels_(kernels) {}

  std::string name() const override { return "cpu"; }
  fmoe::machine machine(dtype) const override { return kernels_.machine(); }
  planner::kernel_facts kernels(dtype) const override { return kernels_.facts(); }
  std::optional<std::string> refusal(const planner::operation&) const override { return {}; }

 private:
  std::unique_ptr<executable> compiled(const job& work) const override {
    const auto make = [&](step_plan p) {
      return kernels_.executable_of(std::move(p), work.program.leaves, work.callers, work.threads);
    };
    if (work.how.tunes && !planner::tuned_shape(work.program, work.how))
      planner::keep_tuned_shape(planner::tuning_key(work.program, work.how),
                                type_ == dtype::float32
                                    ? tuned<float>(work.program, work.how, make)
                                    : tuned<double>(work.program, work.how, make));
    return make(make_plan(work.program, work.tokens, work.how));
  }
  description explained(const job& work) const override {
    const step_plan p = make_plan(work.program, work.tokens, work.how);
    const prediction times(p, work.program.leaves, work.how.on, work.how.element_bytes,
                           work.how.threads);
    vector<std::string> seconds;
    for (const double of : times.of_steps()) seconds.push_back(detail::time_text(of));
    const plan_printer printed(p, seconds);
    const auto tells_bounds = [](const step& s) {
      const auto* const screen = get_if<screen_step>(&s);
      return screen != nullptr && screen->rule.what == selection_rule::kind::top_k;
    };
    const extent kib = divide_up(p.arena * work.how.element_bytes, 1024);
    return {.layout = "tile of " + std::to_string(p.tile) + " tokens, arena " +
                      std::to_string(kib) + " KiB",
            .steps = printed.text(),
            .dot = printed.dot(),
            .seconds = times.seconds(),
            .packed = kernels_.packed_bytes(p, work.program.leaves),
            .call = kernels_.call_bytes(p, work.threads),
            .tells_bounds = std::ranges::any_of(p.steps, tells_bounds)};
  }

  dtype type_;
  const level_kernels& kernels_;
};

template <class T, class Level>
std::shared_ptr<const backend> host() {
  static const auto cpu =
      std::make_shared<const host_backend>(detail::dtype_of<T>, level_kernels_of<T, Level>());
  return cpu;
}

}  // namespace fmoe::cpu
