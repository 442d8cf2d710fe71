// SPDX-License-Identifier: MIT
// Views the same elements in another shape: files store two axes where the equations of a layer
// have three, and callers have several axes of tokens where layers have one.
#pragma once

#include <fmoe/arrays/quantized.hpp>
#include <fmoe/base/error.hpp>

namespace fmoe {

// Returns the same elements in another shape; a parameter that holds nothing stays so. Throws
// shape_error if the shape has another number of elements.
template <std::size_t To, class T, std::size_t From>
auto viewed(const parameter<T, From>& p, const std::array<std::size_t, To>& shape) {
  using stored = typename parameter<T, From>::value_type;
  using view = parameter<stored, To>;
  if (p.empty()) return view();
  detail::expects<shape_error>(detail::element_count(shape) == p.size(), "[view] the shape has ",
                               detail::element_count(shape), " elements and the parameter ",
                               p.size());
  if constexpr (detail::is_quantized<stored>)
    return view(tensor<stored, To>(shape, p.shared_storage(), p.blocks()));
  else return view(tensor<stored, To>(shape, p.shared_storage()));
}

// [..., i] -> [t, i]. The leading axes count tokens. The result shares the elements.
template <class T, std::size_t Rank>
tensor<T, 2> flattened(const tensor<T, Rank>& t) {
  static_assert(Rank >= 2, "flattened: the tensor has a leading axis");
  const std::size_t columns = t.shape().back();
  return {{detail::element_count(std::span(t.shape()).first(Rank - 1)), columns},
          t.shared_storage()};
}

}  // namespace fmoe
