// SPDX-License-Identifier: MIT
// The wall between optimizers and the kernels that they run: here are the declarations, and
// update-inl.hpp has the definitions.
#pragma once

#include <optional>
#include <span>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/backend/cpu/kernels/update_numbers.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// Where the gradient of a parameter has only some rows along one of the parameter's axes: it is 0
// in all others.
struct row_update {
  std::span<const std::uint32_t> rows;  // their numbers, ascending
  extent all_rows, width;               // of the parameter; the elements of a row
  extent inner;  // elements of a row that are neighbours in the parameter, which has the others
                 // `all_rows` times as far apart
  bool leaves_others;  // the other rows stay as they are
};

// The arrays of a step over one parameter, `count` elements each. `weights` have the type of the
// gradient, float or double. Where the parameter has 16 bits, they are its master, and `rounded` is
// the parameter itself.
struct weight_update {
  dtype type, rounded_type;
  void *weights, *rounded;  // rounded: null for a parameter that is its own master
  const void* gradient;
  void *first, *second;  // averages; null if the rule has none
  extent count;
  std::optional<row_update> sparse{};
};

// Takes all elements through a step. Elements do not depend on each other, so the bits are those of
// any number of threads.
template <class Level>
void update_weights(const cpu::sgd_numbers& rule, const weight_update& to);
template <class Level>
void update_weights(const cpu::adam_numbers& rule, const weight_update& to);

// Elements of float or double.
struct number_array {
  dtype type;
  void* elements;
  extent count;
};

// The sum of the squares of an array, in double: parts of fixed length in their order, so that it
// does not depend on threads.
template <class Level>
double squares_of(const number_array& x);

// Multiplies an array by a number.
template <class Level>
void scale_array(const number_array& x, double factor);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/optimizers/update-inl.hpp>
#endif
