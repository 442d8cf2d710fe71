// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmoe/backend/cpu/kernels/update.hpp>
#include <fmoe/backend/cpu/parallel-inl.hpp>
#include <fmoe/optimizers/update.hpp>

namespace fmoe::detail {

// The elements that a thread takes at a time: five arrays of so many floats fit L2.
inline constexpr extent update_part = 1 << 15;

// Calls f(first, count) for parts of `count` elements, on all threads.
template <class F>
void each_part(extent count, const F& f) {
  cpu::parallel(divide_up(count, update_part), [&](extent part) {
    const extent first = part * update_part;
    f(part, first, std::min(update_part, count - first));
  });
}

// Runs a rule: update(w, g, first, second, count) for arrays of T.
template <class T, class Level, class Update>
void run_update(const weight_update& to, const Update& update) {
  using arch = cpu::native_arch;
  const auto at = [](auto* elements, extent i) {
    return elements == nullptr ? nullptr : elements + i;
  };
  auto* const w = static_cast<T*>(to.weights);
  const auto* const g = static_cast<const T*>(to.gradient);
  auto *const first = static_cast<T*>(to.first), *const second = static_cast<T*>(to.second);
  each_part(to.count, [&](extent, extent from, extent count) {
    update(w + from, g + from, at(first, from), at(second, from), count);
    if constexpr (std::is_same_v<T, float>) {
      if (to.rounded == nullptr) return;
      with_type(to.rounded_type, [&](auto* type) {
        using S = std::remove_pointer_t<decltype(type)>;
        if constexpr (sizeof(S) == 2)
          cpu::narrow_weights<S, arch>(w + from, static_cast<S*>(to.rounded) + from, count);
      });
    }
  });
}

template <class Level>
void update_weights(const cpu::sgd_numbers& rule, const weight_update& to) {
  const auto run = [&]<class T>(T*) {
    run_update<T, Level>(to, [&](T* w, const T* g, T* buffer, T*, extent count) {
      cpu::sgd_update<T, cpu::native_arch>(rule, w, g, buffer, count);
    });
  };
  to.type == dtype::float64 ? run(static_cast<double*>(nullptr))
                            : run(static_cast<float*>(nullptr));
}

template <class Level>
void update_weights(const cpu::adam_numbers& rule, const weight_update& to) {
  const auto run = [&]<class T>(T*) {
    run_update<T, Level>(to, [&](T* w, const T* g, T* first, T* second, extent count) {
      cpu::adam_update<T, cpu::native_arch>(rule, w, g, first, second, count);
    });
  };
  to.type == dtype::float64 ? run(static_cast<double*>(nullptr))
                            : run(static_cast<float*>(nullptr));
}

template <class Level>
double squares_of(const any_tensor& x) {
  const extent count = element_count(x.shape);
  std::vector<double> sums(divide_up(count, update_part));
  const auto run = [&]<class T>(const T* elements) {
    each_part(count, [&](extent part, extent from, extent length) {
      sums[part] = cpu::sum_of_squares<T, cpu::native_arch>(elements + from, length);
    });
  };
  if (x.type == dtype::float64) run(static_cast<const double*>(x.elements->data()));
  else run(static_cast<const float*>(x.elements->data()));
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

template <class Level>
void scale_tensor(const any_tensor& x, double factor) {
  const auto run = [&]<class T>(T* elements) {
    each_part(element_count(x.shape), [&](extent, extent from, extent length) {
      cpu::scale_in_place<T, cpu::native_arch>(elements + from, static_cast<T>(factor), length);
    });
  };
  if (x.type == dtype::float64) run(static_cast<double*>(x.elements->written()));
  else run(static_cast<float*>(x.elements->written()));
}

}  // namespace fmoe::detail
