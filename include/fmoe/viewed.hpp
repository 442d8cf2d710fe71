// SPDX-License-Identifier: MIT
// One parameter in several shapes: files store two axes where a layer's equations have three.
#pragma once

#include <fmoe/base/error.hpp>
#include <fmoe/tensor.hpp>

namespace fmoe {

// The same elements as another shape of as many; nothing stays nothing. Throws shape_error for another number.
template <std::size_t To, class T, std::size_t From>
parameter<T, To> viewed(const parameter<T, From>& p, const std::array<extent, To>& shape) {
  if (p.empty()) return {};
  expects<shape_error>(element_count(shape) == p.size(), "[view] the shape has ", element_count(shape), " elements and the parameter ",
                       p.size());
  return parameter<T, To>(tensor<T, To>(shape, p.shared_storage()));
}

}  // namespace fmoe
