// SPDX-License-Identifier: MIT
// The backend of GPUs and of emulated blocks.
#pragma once

#include <fmoe/backend/backend-inl.hpp>
#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/emulated/emulated_device.hpp>
#include <fmoe/backend/cuda/executable.hpp>
#include <fmoe/backend/cuda/plan.hpp>
#include <fmoe/backend/cuda/roofline.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/plan/print.hpp>

#if defined(__CUDACC__)
#include <fmoe/backend/cuda/hardware/gpu.hpp>
#endif

namespace fmoe::cuda {

template <class Device>
class device_backend final : public processor {
 public:
  device_backend(Device on, const device_options& options)
      : on_(std::move(on)),
        options_(options) {}

  std::string name() const override { return "cuda"; }
  fmoe::machine machine(dtype type) const override {
    return type == dtype::float64 ? machine_for<double>(on_.machine())
                                  : machine_for<float>(on_.machine());
  }
  planner::kernel_facts kernels(dtype type) const override {
    return type == dtype::float64 ? kernel_facts_of<double>() : kernel_facts_of<float>();
  }

  place where() const override { return on_.where(); }
  void* allocate(std::size_t bytes) const override { return on_.allocate(bytes); }
  void release(void* memory) const noexcept override { on_.release(memory); }
  void copy_in(void* device, const void* host, std::size_t bytes, CUstream_st* on) const override {
    queue work(on_, on);
    work.copy_in(device, host, bytes);
    work.wait();
  }
  void copy_out(void* host, const void* device, std::size_t bytes, CUstream_st* on) const override {
    queue work(on_, on);
    work.copy_out(host, device, bytes);
    work.wait();
  }
  CUstream_st* new_stream() const override { return on_.new_stream(); }
  void delete_stream(CUstream_st* stream) const noexcept override { on_.delete_stream(stream); }
  void synchronize(CUstream_st* stream) const override { queue(on_, stream).wait(); }

  void begin_capture(CUstream_st* stream) const override { on_.begin_capture(stream); }
  void* end_capture(CUstream_st* stream) const override { return on_.end_capture(stream); }
  void launch(void* graph, CUstream_st* stream) const override { on_.launch(graph, stream); }
  void delete_graph(void* graph) const noexcept override { on_.delete_graph(graph); }

  std::optional<std::string> refusal(const planner::operation& o) const override {
    if (std::ranges::any_of(o.passes, [](const planner::pass& p) { return p.f.own != nullptr; }))
      return "a function of the program's own code does not run on a GPU: write it with fmoe's "
             "functions, or leave it out of the layer and call it on what the layer returns";
    if (o.passes.size() > passes<float>::most)
      return "an operation has more than " + std::to_string(passes<float>::most) + " passes";
    const extent loops = labels_of(o).size();
    if (loops > nest_loops<float>::most)
      return "an operation has " + std::to_string(loops) + " labels, and a kernel has loops for " +
             std::to_string(nest_loops<float>::most);
    if (planner::is<planner::exclude_op>(o) && loops > exclude_loops::most)
      return "a sum without pairs has " + std::to_string(loops) +
             " labels, and a kernel has loops " + "for " + std::to_string(exclude_loops::most);
    constexpr extent most = product_select_kernel<float>::most_each;
    if (planner::is<planner::select_op>(o)) {
      const selection_rule& rule = planner::as<planner::select_op>(o).rule;
      if (rule.what == selection_rule::kind::entries)
        return "a selection that is given as its entries does not run on a GPU";
      if (rule.what == selection_rule::kind::product_top_k && rule.each > most)
        return "each list keeps " + std::to_string(rule.each) + " entries, and a GPU's block has " +
               "room for " + std::to_string(most);
    }
    return {};
  }

 private:
  using queue = typename Device::queue;

  // Each label once.
  static std::string labels_of(const planner::operation& o) {
    std::string all(o.out.labels);
    for (const planner::use& u : o.in)
      for (const char c : u.labels)
        if (!has(all, c)) all += c;
    return all;
  }

  // The bytes of a layer on the device.
  template <class T>
  struct footprint {
    extent weights, call, callers;

    footprint(const step_plan& p, const job& work, math how)
        : weights(device_weights<T, Device>::bytes(p, work.program.leaves) +
                  step_lists<Device>::bytes(p)),
          call(device_executable<T, Device>::bytes_of_call(p, how)),
          callers(work.callers == all ? 1 : work.callers) {}

    extent bytes() const { return weights + callers * call; }
    extent most_callers(extent memory) const {
      return memory == all ? all : (memory - weights) / std::max<extent>(1, call);
    }
  };

  // The plan with as many tokens at a time as workspace and memory take. Throws value_error if the
  // memory does not take a layer that goes through its steps token by token.
  template <class T>
  step_plan plan_of(const job& work) const {
    extent workspace = options_.workspace;
    for (;;) {
      step_plan p = make_plan(work.program, work.tokens, work.how, workspace, options_.math);
      const footprint<T> all_of(p, work, options_.math);
      if (all_of.bytes() <= options_.memory) return p;
      expects<value_error>(p.tile > 1 && p.arena > 0, "[cuda] the layer takes ", all_of.bytes(),
                           " bytes of the GPU, ", all_of.weights, " of them for weights and ",
                           all_of.call, " for each caller, and may take ", options_.memory);
      workspace = p.arena * sizeof(T) - 1;
    }
  }

  template <class T>
  std::unique_ptr<executable> compiled_in(const job& work) const {
    step_plan p = plan_of<T>(work);
    const bool grows = work.callers == all;
    const extent most =
        grows ? footprint<T>(p, work, options_.math).most_callers(options_.memory) : work.callers;
    return std::make_unique<device_executable<T, Device>>(
        std::move(p), work.program.leaves, on_, grows ? 1 : work.callers, most, options_.math);
  }
  std::unique_ptr<executable> compiled(const job& work) const override {
    return work.type == dtype::float64 ? compiled_in<double>(work) : compiled_in<float>(work);
  }

  // The arithmetic of each product, where the machine's rates are not known.
  template <class T>
  vector<std::string> notes_of(const step_plan& p) const {
    const math how = std::is_same_v<T, double> ? math::exact : options_.math;
    vector<std::string> notes;
    each_step(p.steps, [&](const step& s) {
      const auto* const product = get_if<gemm_step>(&s);
      notes.push_back(product != nullptr ? name_of(math_of(*product, how)) : "");
    });
    return notes;
  }

  template <class T>
  description explained_in(const job& work) const {
    const step_plan p = plan_of<T>(work);
    const fmoe::machine& m = work.how.on;
    const bool is_known = m.gpu.launch > 0;
    const roofline times(p, work.program.leaves, m, options_.math, sizeof(T));
    const auto notes = is_known ? times.notes() : notes_of<T>(p);
    const plan_printer printed(p, notes);
    const footprint<T> all_of(p, work, options_.math);
    return {.layout = "tile of " + std::to_string(p.tile) + " tokens, arena " +
                      std::to_string(divide_up(p.arena * sizeof(T), 1024)) + " KiB" +
                      (options_.math != math::fp32 ? ""
                       : Device::has_blas          ? ", plain products by cuBLASLt"
                                                   : ", products by fmoe's kernels"),
            .steps = printed.text(),
            .dot = printed.dot(),
            .seconds = is_known ? times.seconds() : 0,
            .has_threads = false,
            .packed = all_of.weights,
            .call = all_of.call};
  }
  description explained(const job& work) const override {
    return work.type == dtype::float64 ? explained_in<double>(work) : explained_in<float>(work);
  }

  Device on_;
  device_options options_;
};

FMOE_INLINE std::shared_ptr<const processor> emulated(const device_options& options, int number) {
  expects<value_error>(number >= 0 && number < options.emulated_devices,
                       "[cuda] there is no emulated device ", number, ": the options say ",
                       options.emulated_devices);
  return std::make_shared<const device_backend<emulated_device>>(emulated_device(number, options),
                                                                 options);
}

// Returns how many GPUs the program can use.
inline int gpu_count() {
#if defined(__CUDACC__)
  return gpu::count();
#else
  return 0;
#endif
}

FMOE_INLINE std::shared_ptr<const processor> device(
    int number, [[maybe_unused]] const device_options& options) {
#if defined(__CUDACC__)
  if (number >= 0 && number < gpu_count())
    return std::make_shared<const device_backend<gpu>>(gpu(number, options), options);
  constexpr const char* why = "";
#else
  constexpr const char* why = ", since its kernels are compiled without nvcc";
#endif
  fail<value_error>("[cuda] there is no GPU ", number, ": the program can use ", gpu_count(), why,
                    "; cuda::emulated() runs the kernels on the CPU");
}

FMOE_INLINE std::shared_ptr<const processor> gpu_or_emulated(const device_options& options) {
  return gpu_count() > 0 ? device(0, options) : emulated(options);
}

FMOE_INLINE place place_of_device(int number) {
  return {gpu_count() > 0 ? gpu_name : emulated_name, number};
}

FMOE_INLINE place place_of(const void* pointer) {
  if (const auto number = emulated_memory::device_of(pointer)) return {emulated_name, *number};
#if defined(__CUDACC__)
  if (const auto number = gpu::device_of(pointer)) return {gpu_name, *number};
#endif
  fail<value_error>("[cuda] this pointer is of no device's memory");
}

}  // namespace fmoe::cuda
