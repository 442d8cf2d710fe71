// SPDX-License-Identifier: MIT
// Sizes, and arithmetic on them that cannot wrap around.
#pragma once

#include <cstddef>
#include <span>

#include <fmoe/base/error.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe {

// As many as there are, where a number is asked for: every entry of a row, the extent that an axis
// has by itself, the rank of an array.
inline constexpr std::size_t all = ~std::size_t{0};

}  // namespace fmoe

namespace fmoe::detail {

using extent = std::size_t;

inline constexpr extent max_rank = 8;

constexpr extent divide_up(extent n, extent by) { return n / by + (n % by != 0); }
constexpr extent round_up(extent n, extent to) { return divide_up(n, to) * to; }

// Sets `product` to a * b. Returns false if the product does not fit.
constexpr bool multiply(extent a, extent b, extent& product) {
  product = a * b;
  return a == 0 || product / a == b;
}

// Throws shape_error for a shape whose bytes do not fit an extent.
[[noreturn]] void refuse_shape(std::span<const extent> shape);

// Returns the number of elements of `shape`, 1 for rank 0. Throws shape_error if elements *
// bytes_each does not fit an extent, even if another extent is zero.
inline extent element_count(std::span<const extent> shape, extent bytes_each = 1) {
  extent stride = bytes_each;
  bool fits = true, empty = false;
  for (const extent n : shape) {
    empty |= n == 0;
    if (n != 0) fits = fits && multiply(stride, n, stride);
  }
  if (!fits) refuse_shape(shape);
  return empty ? 0 : stride / bytes_each;
}

}  // namespace fmoe::detail

// The namespaces that are not for users see the helpers; fmoe itself does not.
namespace fmoe::ir {
using namespace detail;
}
namespace fmoe::planner {
using namespace detail;
}
namespace fmoe::plan {
using namespace detail;
}
namespace fmoe::cpu {
using namespace detail;
using namespace plan;
}  // namespace fmoe::cpu
namespace fmoe::cuda {
using namespace detail;
using namespace plan;
}  // namespace fmoe::cuda
namespace fmoe::reference_backend {
using namespace detail;
}
namespace fmoe::io {
using namespace detail;
}

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/base/checked-inl.hpp>
#endif
