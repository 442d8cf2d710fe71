// SPDX-License-Identifier: MIT
// The products of a plan that cuBLASLt computes, where the device has it, outside of groups: under
// the policy fp32 those with one matrix, and the scores of many rows that a selection screens, of
// which no result has bits.
#pragma once

#include <map>
#include <optional>

#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/policy.hpp>

namespace fmoe::cuda {

template <class Device>
class blas_products {
 public:
  using blas = typename Device::blas;

  // Chooses kernels for as many rows as a tile has.
  blas_products(const step_plan& p, math policy) {
    const auto stride = [&](const view& v) { return p.storages[v.storage].stride; };
    for (const step& step : p.steps) {
      if (const auto* const s = get_if<screen_step>(&step)) {
        if (p.tile <= few_rows) continue;
        const extent of_x = 2 * stride(s->scratch);
        const extent columns = pitch<bf16>(s->N);
        choose(s, {nullptr,
                   of_x,
                   nullptr,
                   columns,
                   {nullptr, stride(s->scratch)},
                   p.tile,
                   s->K,
                   columns,
                   false,
                   dtype::bfloat16});
      }
      const auto* const s = get_if<gemm_step>(&step);
      if (s == nullptr || policy != math::fp32 || math_of(*s, policy) != policy) continue;
      if (s->rows.size() != 1 || s->rows[0] != gemm_step::row{}) continue;
      choose(s, {nullptr,
                 stride(s->a),
                 nullptr,
                 pitch<float>(s->N),
                 {nullptr, stride(s->c)},
                 p.tile,
                 s->K,
                 s->N,
                 s->accumulate});
    }
  }

  // Returns false if cuBLASLt does not compute this step.
  bool run(const gemm_step& s, const typename blas::product& p,
           typename Device::queue& queue) const {
    return multiply(&s, p, queue);
  }
  bool run(const screen_step& s, const typename blas::product& p,
           typename Device::queue& queue) const {
    return p.rows > few_rows && multiply(&s, p, queue);
  }

 private:
  static constexpr extent few_rows = 64;  // which our kernel multiplies sooner

  template <class S>
  static extent pitch(extent columns) {
    return round_up(columns, extent{numbers_each<S>});
  }
  void choose(const void* step, const typename blas::product& p) {
    if (!by_) by_.emplace();
    if (const auto kernel = by_->kernel_for(p)) kernels_.emplace(step, *kernel);
  }
  bool multiply(const void* step, const typename blas::product& p,
                typename Device::queue& queue) const {
    const auto found = kernels_.find(step);
    return found != kernels_.end() && queue.multiply(*by_, found->second, p);
  }

  std::optional<blas> by_;                                // if there is a product for it
  std::map<const void*, typename blas::kernel> kernels_;  // by step
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
