// SPDX-License-Identifier: MIT
// What screened selections have of their weights on a device: G by columns, and bounds.
#pragma once

#include <map>

#include <fmoe/backend/cuda/kernels/screen.hpp>
#include <fmoe/backend/cuda/weights.hpp>

namespace fmoe::cuda {

template <class Device>
class screens {
 public:
  // [columns, depth], and two numbers of each column.
  struct of_weight {
    const float *rows, *by_norm, *by_rounding;
  };

  static constexpr extent size(extent depth, extent columns) { return columns * (depth + 2); }

  screens(const cpu::plan& p, const device_weights<float, Device>& weights, const Device& on,
          typename Device::queue& q) {
    for (extent w = 0; w < p.weights.size(); ++w) {
      const cpu::packed_weight& weight = p.weights[w];
      if (!weight.screened) continue;
      made_[w] = weights.of_matrices(w, "screen by " + std::to_string(p.sum_block), [&] {
        auto made = std::make_shared<device_array<Device, float>>(on, size(weight.K, weight.N));
        const auto [rows, by_norm, by_rounding] = parts(weight, made->data());
        q.each("weights",
               bound_columns{weights.matrices(w), const_cast<float*>(rows),
                             const_cast<float*>(by_norm), const_cast<float*>(by_rounding), weight.K,
                             weight.N, screen_errors::of(weight.K, p.sum_block)},
               weight.N);
        q.wait();
        return made;
      });
    }
  }

  of_weight of(const cpu::plan& p, extent weight) const {
    return parts(p.weights[weight], made_.at(weight)->data());
  }

 private:
  static of_weight parts(const cpu::packed_weight& w, const float* memory) {
    return {memory, memory + w.K * w.N, memory + (w.K + 1) * w.N};
  }

  std::map<extent, std::shared_ptr<const device_array<Device, float>>> made_;
};

}  // namespace fmoe::cuda
