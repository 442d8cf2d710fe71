// SPDX-License-Identifier: MIT
// Takes one entry of an axis of a tensor: the weights of one expert from those of all experts.
#pragma once

#include <fmoe/arrays/tensor.hpp>

namespace fmoe {

// Returns a copy of entry `index` of an axis. Throws value_error if there is no such entry.
template <extent Axis, class T, std::size_t Rank>
tensor<T, Rank - 1> slice(const tensor<T, Rank>& t, extent index) {
  expects<value_error>(index < t.shape()[Axis], "[slice] there is no entry ", index,
                       " in an axis of ", t.shape()[Axis]);
  std::array<extent, Rank - 1> shape;
  for (extent k = 0; k + 1 < Rank; ++k) shape[k] = t.shape()[k < Axis ? k : k + 1];
  const extent inner = element_count(std::span(t.shape()).subspan(Axis + 1)),
               step = t.shape()[Axis] * inner;
  tensor<T, Rank - 1> result(shape);
  for (extent at = 0; at < result.size(); at += inner)
    std::copy_n(t.data() + at / inner * step + index * inner, inner, result.data() + at);
  return result;
}

}  // namespace fmoe
