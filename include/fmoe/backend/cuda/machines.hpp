// SPDX-License-Identifier: MIT
// GPUs as the planner sees them, by their data sheets.
#pragma once

#include <fmoe/planner/machine.hpp>

namespace fmoe::cuda {

// A GPU with these rates. What decides no number here is that of any machine.
inline machine gpu_machine(const char* name, const machine_rates& rates, std::size_t l2_mib,
                           const gpu_rates& of) {
  machine m;
  m.name = name;
  m.threads = 1;
  m.one = m.every = rates;
  m.gpu = of;
  m.l1 = 256 << 10;
  m.l2 = m.l3 = l2_mib << 20;
  m.set_stride = ~std::size_t{0};  // rows at no distance share sets of a cache
  return m;
}

// An H100 SXM5 and an A100 SXM4 of 80 GB, for compile_options::as: the plan and its predicted times
// are those of the GPU, wherever the plan is made. Rates are peaks, without sparsity.
inline machine h100() {
  return gpu_machine("NVIDIA H100 80GB HBM3",
                     {.flops = 67e12,
                      .int16_dots = 134e12,
                      .int8_dots = 1979e12,
                      .bf16_dots = 990e12,
                      .l2 = 5.5e12,
                      .l3 = 5.5e12,
                      .memory = 3.35e12},
                     50, {.tf32_dots = 495e12, .launch = 2e-6});
}
inline machine a100() {
  return gpu_machine("NVIDIA A100-SXM4-80GB",
                     {.flops = 19.5e12,
                      .int16_dots = 39e12,
                      .int8_dots = 624e12,
                      .bf16_dots = 312e12,
                      .l2 = 4e12,
                      .l3 = 4e12,
                      .memory = 2.04e12},
                     40, {.tf32_dots = 156e12, .launch = 2.5e-6});
}

}  // namespace fmoe::cuda
