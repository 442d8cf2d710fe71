// SPDX-License-Identifier: MIT
// Numbers as tensor cores take them, in words of 32 bits, and where these lie in shared memory.
#pragma once

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/kernels/narrow_number.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/product_choice.hpp>

namespace fmoe::cuda {

// How tensor cores take the numbers of an operand.
template <math How>
struct tensor_words {
  static constexpr bool is_split = How == math::tf32x3;  // numbers are sums of two
  static constexpr bool has_pairs = How == math::bf16;   // of neighbours, in a word
  static constexpr unsigned kinds = is_split ? 2 : 1, numbers = has_pairs ? 2 : 1;  // of a word
  static constexpr unsigned of_row = tensor_stage / numbers;                        // in a stage
  static constexpr unsigned of_product = 8;                                         // along the sum

  // The words of neighbours along a sum.
  template <unsigned Count>
  struct some {
    pack<std::uint32_t, Count / numbers> of[kinds];

    FMOE_DEVICE explicit some(const float (&x)[Count]) {
      FMOE_UNROLL
      for (unsigned i = 0; i < Count; i += numbers) {
        if constexpr (has_pairs) {
          of[0].of[i / 2] = to_bf16_pair(x[i], x[i + 1]);
        } else if constexpr (is_split) {
          const tf32_pair two(x[i]);
          of[0].of[i] = two.big;
          of[1].of[i] = two.small;
        } else {
          of[0].of[i] = nearly_tf32(x[i]);
        }
      }
    }
  };

  // Where a word of a row is, from a row on whose number is a multiple of 8: accesses of 16 bytes
  // change places, as tensor cores read them, so that neighbouring rows stand in other banks.
  FMOE_DEVICE static unsigned place(unsigned row, unsigned word) {
    const unsigned at = row * of_row + word;
    return at ^ (at >> 3 & (of_row == 32 ? 0x1c : 0xc));
  }
};

}  // namespace fmoe::cuda
