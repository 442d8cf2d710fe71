// SPDX-License-Identifier: MIT
// Which kernels multiply with weights of 8 bits. With AVX-512 there are two forms, which make the
// same floats: a shuffle and a fused subtraction widen a vector, or two conversions and this
// subtraction do. An Intel Granite Rapids gained by the shuffle, and an AMD Zen 5 gains by the
// conversions. So the first product of a process measures both.
#pragma once

#include <algorithm>
#include <chrono>

#include <fmoe/backend/cpu/kernels/gemm.hpp>

namespace fmoe::cpu {

// Returns the seconds of one row times four panels that lie in L1.
inline double seconds_of_row(const gemm_kernels<float>& kernels, const std::byte* panels,
                             extent depth, const float* row, float* result) {
  const extent bytes = kernels.bytes(depth), width = kernels.row_bytes;  // a byte a weight
  const gemm_tile<float> tile{depth,     row,   depth, panels,  bytes, result,
                              4 * width, false, depth, nullptr, 0,     0};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 32; ++i) kernels.streams[2][0](tile);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Q, class Arch>
const gemm_kernels<float>& int8_kernels() {
  using plain = panel_int8<Q, Arch>;
  const auto& converted = gemm_kernels_of<float, plain, Arch>;
  if constexpr (plain::is_biased) {
    const auto& shuffled = gemm_kernels_of<float, panel_int8<Q, Arch, int8_form::shuffled>, Arch>;
    static const bool is_faster = [&] {
      constexpr extent depth = 64, width = panel_width<float, Arch>;
      alignas(64) std::byte panels[4 * (depth * width + depth / plain::group * width *
                                                            sizeof(typename plain::scale))] = {};
      alignas(64) float row[depth] = {}, result[4 * width];
      double least[2] = {1, 1};
      for (int i = 0; i < 8; ++i)
        for (const bool shuffles : {false, true})
          least[shuffles] =
              std::min(least[shuffles],
                       seconds_of_row(shuffles ? shuffled : converted, panels, depth, row, result));
      return least[true] < least[false];
    }();
    return is_faster ? shuffled : converted;
  } else {
    return converted;
  }
}

}  // namespace fmoe::cpu
