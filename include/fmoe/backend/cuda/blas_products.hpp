// SPDX-License-Identifier: MIT
// The products of a plan that cuBLASLt computes, where the device has it: those of the policy fp32
// with one matrix, outside of groups.
#pragma once

#include <map>

#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/policy.hpp>

namespace fmoe::cuda {

template <class Device>
class blas_products {
 public:
  using blas = typename Device::blas;

  // Chooses kernels for as many rows as a tile has.
  void choose_kernels(const cpu::plan& p) {
    const auto stride = [&](const cpu::view& v) { return p.storages[v.storage].stride; };
    for (const cpu::step& step : p.steps) {
      const auto* const s = get_if<cpu::gemm_step>(&step);
      if (s == nullptr || math_of(*s, math::fp32) != math::fp32) continue;
      if (s->rows.size() != 1 || s->rows[0] != cpu::gemm_step::row{}) continue;
      const auto kernel = by_.kernel_for({.a = {nullptr, stride(s->a)},
                                          .pitch = round_up(s->N, extent{numbers_each<float>}),
                                          .c = {nullptr, stride(s->c)},
                                          .rows = p.tile,
                                          .depth = s->K,
                                          .columns = s->N,
                                          .accumulate = s->accumulate});
      if (kernel) kernels_.emplace(s, *kernel);
    }
  }

  // Returns false if cuBLASLt does not compute this step.
  bool run(const cpu::gemm_step& s, const typename blas::product& p,
           typename Device::queue& queue) const {
    const auto found = kernels_.find(&s);
    return found != kernels_.end() && queue.multiply(by_, found->second, p);
  }

 private:
  blas by_;
  std::map<const cpu::gemm_step*, typename blas::kernel> kernels_;
};

struct no_blas_products {};

template <class Device>
struct blas_products_of {
  using type = no_blas_products;
};
template <class Device>
  requires(Device::has_blas)
struct blas_products_of<Device> {
  using type = blas_products<Device>;
};

}  // namespace fmoe::cuda
