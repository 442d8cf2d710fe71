// SPDX-License-Identifier: MIT
// What screened selections have of their weights on a device beside the numbers: the bounds of each
// column.
#pragma once

#include <map>

#include <fmoe/backend/cuda/kernels/screen_rows.hpp>
#include <fmoe/backend/cuda/weights.hpp>

namespace fmoe::cuda {

template <class Device>
class screens {
 public:
  struct bounds {  // by column
    const float *by_norm, *by_rounding;
  };

  screens(const step_plan& p, const device_weights<float, Device>& weights, const Device& on,
          typename Device::queue& q) {
    for (extent w = 0; w < p.weights.size(); ++w) {
      const packed_weight& weight = p.weights[w];
      if (!weight.screened) continue;
      made_[w] = weights.of_matrices(w, "screen by " + std::to_string(p.sum_block), [&] {
        const auto made = std::make_shared<const device_array<Device, float>>(on, 2 * weight.N);
        const stored_table columns = weights.columns(w);
        with_table_type<float>(columns.stored, [&]<class S>(S*) {
          q.each("weights",
                 bound_columns<S>{static_cast<const S*>(columns.data), made->data(),
                                  made->data() + weight.N, weight.K, weight.N,
                                  screen_errors::of(weight.K, p.sum_block)},
                 weight.N);
        });
        q.wait();
        return std::shared_ptr<const float>(made, made->data());
      });
    }
  }

  bounds of(const step_plan& p, extent weight) const {
    const float* const first = made_.at(weight).get();
    return {first, first + p.weights[weight].N};
  }

 private:
  std::map<extent, std::shared_ptr<const float>> made_;
};

}  // namespace fmoe::cuda
