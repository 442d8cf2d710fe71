// SPDX-License-Identifier: MIT
// The weights of one expert, for the functions expert(n) of layers.
#pragma once

#include <string>
#include <string_view>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/arrays/sliced.hpp>

namespace fmoe::detail {

// Returns expert n's slice of the weights of all experts. Throws value_error if there is no such
// expert; the message calls it `name` and ends with `where`.
template <extent Axis, class T, extent Rank>
auto expert_slice(const tensor<T, Rank>& weights, extent n, std::string_view name = "expert",
                  std::string_view where = {}) {
  const extent count = weights.shape()[Axis];
  expects<value_error>(n < count, "[expert] there is no ", name, ' ', n, " among ", count, where);
  return sliced<Axis>(weights, n);
}

// The same for one level of a hierarchy of `levels`.
template <extent Axis, class T, extent Rank>
auto expert_slice(const tensor<T, Rank>& weights, extent n, extent level, extent levels) {
  const std::string where = levels == 1 ? "" : " of level " + std::to_string(level);
  return expert_slice<Axis>(weights, n, "expert", where);
}

// Returns a weight that all experts have, as floats if its type has 8 bits.
template <class T, extent Rank>
parameter<widened_t<T>, Rank> widened_weight(const parameter<T, Rank>& weight) {
  if constexpr (!is_quantized<T>) return weight;
  else if (weight.empty()) return {};
  else return tensor_of<float, Rank>(as_floats(any_of(weight)));
}

}  // namespace fmoe::detail
