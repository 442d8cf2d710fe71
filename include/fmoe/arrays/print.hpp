// SPDX-License-Identifier: MIT
// Prints tensors: std::cout << t shows the elements as numpy does.
#pragma once

#include <iosfwd>
#include <string>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// Returns the elements with 6 digits, in a pair of brackets for each axis. Of an axis of more than
// 6 elements only the first 3 and the last 3 are shown if the tensor has more than 1000 elements.
std::string text_of(const any_tensor& t);

}  // namespace fmoe::detail

namespace fmoe {

// Writes the elements in brackets, row by row. A large tensor is shortened: dots stand for the
// middle of an axis. A default-constructed tensor, which holds nothing, is "(empty)".
template <class Traits, class T, std::size_t Rank>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const tensor<T, Rank>& t) {
  return out << detail::text_of(detail::any_of(t)).c_str();
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/arrays/print-inl.hpp>
#endif
