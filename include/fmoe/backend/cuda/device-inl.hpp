// SPDX-License-Identifier: MIT
// The backend of GPUs and of emulated blocks.
#pragma once

#include <fmoe/backend/backend-inl.hpp>
#include <fmoe/backend/cpu/plan/print.hpp>
#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/executable.hpp>
#include <fmoe/backend/cuda/plan.hpp>
#include <fmoe/backend/cuda/roofline.hpp>
#include <fmoe/base/separate.hpp>

#if defined(__CUDACC__)
#include <fmoe/backend/cuda/hardware/gpu.hpp>
#endif

namespace fmoe::cuda {

template <class Device>
class device_backend final : public backend {
 public:
  device_backend(Device on, const device_options& options)
      : on_(std::move(on)),
        options_(options) {}

  std::string name() const override { return "cuda"; }
  fmoe::machine machine(dtype type) const override {
    return type == dtype::float64 ? machine_for<double>(on_.machine())
                                  : machine_for<float>(on_.machine());
  }

  std::optional<std::string> refusal(const planner::operation& o) const override {
    if (std::ranges::any_of(o.passes, [](const planner::pass& p) { return p.f.own != nullptr; }))
      return "a function of the program's own code does not run on a GPU";
    if (o.passes.size() > passes<float>::most)
      return "an operation has more than " + std::to_string(passes<float>::most) + " passes";
    const extent loops = labels_of(o).size();
    if (loops > nest_loops<float>::most)
      return "an operation has " + std::to_string(loops) + " labels, and a kernel has loops for " +
             std::to_string(nest_loops<float>::most);
    if (is<planner::exclude_op>(o) && loops > exclude_loops::most)
      return "a sum without pairs has " + std::to_string(loops) +
             " labels, and a kernel has loops " + "for " + std::to_string(exclude_loops::most);
    constexpr extent most = product_select_kernel<float>::most_each;
    if (is<planner::select_op>(o))
      if (const auto& rule = as<planner::select_op>(o).rule;
          rule.what == selection_rule::kind::product_top_k && rule.each > most)
        return "each list keeps " + std::to_string(rule.each) + " entries, and a GPU's block has " +
               "room for " + std::to_string(most);
    return {};
  }

 private:
  // Each label once.
  static std::string labels_of(const planner::operation& o) {
    std::string all = o.out.labels;
    for (const planner::use& u : o.in)
      for (const char c : u.labels)
        if (!has(all, c)) all += c;
    return all;
  }

  cpu::plan plan_of(const job& work) const {
    return make_plan(work.program, work.tokens, work.how, options_.workspace, options_.math);
  }

  template <class T>
  std::unique_ptr<const executable> compiled_in(const job& work) const {
    return std::make_unique<const device_executable<T, Device>>(plan_of(work), work.program.leaves,
                                                                on_, work.callers, options_.math);
  }
  std::unique_ptr<const executable> compiled(const job& work) const override {
    return work.type == dtype::float64 ? compiled_in<double>(work) : compiled_in<float>(work);
  }

  // The arithmetic of each product, where the machine's rates are not known.
  template <class T>
  std::vector<std::string> notes_of(const cpu::plan& p) const {
    const math how = std::is_same_v<T, double> ? math::exact : options_.math;
    std::vector<std::string> notes;
    each_step(p.steps, [&](const cpu::step& s) {
      const auto* const product = get_if<cpu::gemm_step>(&s);
      notes.push_back(product != nullptr ? name_of(math_of(*product, how)) : "");
    });
    return notes;
  }

  template <class T>
  description explained_in(const job& work) const {
    const cpu::plan p = plan_of(work);
    const fmoe::machine& m = work.how.on;
    const bool is_known = m.gpu.launch > 0;
    const roofline times(p, work.program.leaves, m, options_.math, sizeof(T));
    const auto notes = is_known ? times.notes() : notes_of<T>(p);
    const cpu::plan_printer printed(p, notes);
    return {.layout = "tile of " + std::to_string(p.tile) + " tokens, arena " +
                      std::to_string(divide_up(p.arena * sizeof(T), 1024)) + " KiB" +
                      (options_.math != math::fp32 ? ""
                       : Device::has_blas          ? ", plain products by cuBLASLt"
                                                   : ", products by fmoe's kernels"),
            .steps = printed.text(),
            .dot = printed.dot(),
            .seconds = is_known ? times.seconds() : 0,
            .has_threads = false,
            .packed = device_weights<T, Device>::bytes(p, work.program.leaves),
            .call = device_executable<T, Device>::bytes_of_call(p)};
  }
  description explained(const job& work) const override {
    return work.type == dtype::float64 ? explained_in<double>(work) : explained_in<float>(work);
  }

  Device on_;
  device_options options_;
};

FMOE_INLINE std::shared_ptr<const backend> emulated(const device_options& options) {
  return std::make_shared<const device_backend<emulated_device>>(emulated_device(options), options);
}

FMOE_INLINE std::shared_ptr<const backend> device(int number, const device_options& options) {
  expects<value_error>(number >= 0, "[cuda] there is no device ", number);
#if defined(__CUDACC__)
  if (const int count = gpu::count(); count > 0) {
    expects<value_error>(number < count, "[cuda] there is no device ", number,
                         ": this machine has ", count);
    return std::make_shared<const device_backend<gpu>>(gpu(number, options), options);
  }
#endif
  return emulated(options);
}

}  // namespace fmoe::cuda
