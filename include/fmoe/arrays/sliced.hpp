// SPDX-License-Identifier: MIT
// Takes one entry of an axis of a tensor: the weights of one expert from those of all experts.
#pragma once

#include <fmoe/arrays/quantized.hpp>

namespace fmoe {

// Returns a copy of one slice of a tensor, which has this index along the axis, as numpy's take and
// PyTorch's select do; weights of 8 bits are widened. Throws value_error if there is no such index.
//
//   const parameter<float, 3> experts({8, 16, 4});   // n i o
//   const tensor<float, 2> third = sliced<0>(experts, 3);  // i o
template <std::size_t Axis, class T, std::size_t Rank>
tensor<detail::widened_t<T>, Rank - 1> sliced(const tensor<T, Rank>& t, std::size_t index) {
  static_assert(Axis < Rank, "sliced: the axis is below the tensor's rank");
  detail::expects<value_error>(index < t.shape()[Axis], "[sliced] there is no index ", index,
                               " in an axis of ", t.shape()[Axis]);
  std::array<std::size_t, Rank - 1> shape;
  for (std::size_t k = 0; k + 1 < Rank; ++k) shape[k] = t.shape()[k < Axis ? k : k + 1];
  const std::size_t inner = detail::element_count(std::span(t.shape()).subspan(Axis + 1)),
                    step = t.shape()[Axis] * inner;
  tensor<detail::widened_t<T>, Rank - 1> result(shape);
  auto* const to = detail::elements_to_write(result);
  for (std::size_t at = 0; at < result.size(); at += inner) {
    const std::size_t from = at / inner * step + index * inner;
    if constexpr (detail::is_quantized<T>)
      detail::with_numbers<float>(t.numbers(), [&](const auto& number) {
        for (std::size_t i = 0; i < inner; ++i) to[at + i] = number(from + i);
      });
    else std::copy_n(t.data() + from, inner, to + at);
  }
  return result;
}

}  // namespace fmoe
