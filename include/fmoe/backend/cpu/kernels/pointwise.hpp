// SPDX-License-Identifier: MIT
// Functions of one number, applied in place to a tile rows × columns. Full vectors and tails use
// the same instructions, and every multiply-add uses fmadd, so the result of a number does not
// depend on its position.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>

#include <fmoe/backend/cpu/kernels/simd.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/pointwise_functions.hpp>

namespace fmoe::cpu {

// The operations of pointwise_functions on vectors.
template <class T, class Arch>
struct vector_operations {
  using scalar = T;
  using value = vec<T, Arch>;

  static value fmadd(const value& a, const value& b, const value& c) {
    return cpu::fmadd<T, Arch>(a, b, c);
  }
  static value select(const mask<T, Arch>& m, const value& a, const value& b) {
    return cpu::select(m, a, b);
  }
  static value abs(const value& x) { return cpu::abs(x); }
  static mask<T, Arch> is_nan(const value& x) { return cpu::isnan(x); }
  static value negate(const value& x) { return cpu::negate<T, Arch>(x); }
  static value divide(const value& a, const value& b) { return cpu::divide<T, Arch>(a, b); }
  static value square_root(const value& x) { return cpu::square_root<T, Arch>(x); }
  static value scale_by_power_of_two(const value& x, const value& n) {
    return cpu::scale_by_power_of_two<T, Arch>(x, n);
  }
  static binary_parts<T, Arch> parts_of(const value& x) { return cpu::parts_of<T, Arch>(x); }
};

template <class T, class Arch>
using vector_functions = pointwise_functions<vector_operations<T, Arch>>;

// Calls f(x, row, column, part) for every vector of the tile; `part` is its number of valid lanes.
template <class T, class Arch, class F>
void for_each_vector(T* c, extent ldc, extent rows, extent columns, F f) {
  constexpr extent width = lanes<T, Arch>;
  for (extent m = 0; m < rows; ++m)
    for (extent n = 0; n < columns; n += width) {
      const extent part = std::min(width, columns - n);
      T* const at = c + m * ldc + n;
      store_part<T, Arch>(at, part, f(load_part<T, Arch>(at, part), m, n, part));
    }
}

template <class T, class Arch, pointwise F>
void apply(T parameter, T* c, extent ldc, extent rows, extent columns) noexcept {
  for_each_vector<T, Arch>(c, ldc, rows, columns,
                           [&](const vec<T, Arch>& x, extent, extent, extent) {
                             return vector_functions<T, Arch>::template evaluate<F>(x, parameter);
                           });
}

template <class T, class Arch>
FMOE_NOINLINE void apply(pointwise f, T parameter, T* c, extent ldc, extent rows,
                         extent columns) noexcept {
  const auto run = [&]<pointwise F>() { apply<T, Arch, F>(parameter, c, ldc, rows, columns); };
  switch (f) {
    case pointwise::relu: return run.template operator()<pointwise::relu>();
    case pointwise::gelu: return run.template operator()<pointwise::gelu>();
    case pointwise::gelu_tanh: return run.template operator()<pointwise::gelu_tanh>();
    case pointwise::silu: return run.template operator()<pointwise::silu>();
    case pointwise::sigmoid: return run.template operator()<pointwise::sigmoid>();
    case pointwise::squared_relu: return run.template operator()<pointwise::squared_relu>();
    case pointwise::exp: return run.template operator()<pointwise::exp>();
    case pointwise::sqrt: return run.template operator()<pointwise::sqrt>();
    case pointwise::inverse_sqrt: return run.template operator()<pointwise::inverse_sqrt>();
    case pointwise::negate: return run.template operator()<pointwise::negate>();
    case pointwise::scale: return run.template operator()<pointwise::scale>();
    case pointwise::shift: return run.template operator()<pointwise::shift>();
    case pointwise::threshold: return run.template operator()<pointwise::threshold>();
    case pointwise::tanh: return run.template operator()<pointwise::tanh>();
    case pointwise::log: return run.template operator()<pointwise::log>();
    case pointwise::abs: return run.template operator()<pointwise::abs>();
    case pointwise::at_least: return run.template operator()<pointwise::at_least>();
    case pointwise::at_most: return run.template operator()<pointwise::at_most>();
    case pointwise::quotient: return run.template operator()<pointwise::quotient>();
    case pointwise::inverse: return run.template operator()<pointwise::inverse>();
    case pointwise::power: return run.template operator()<pointwise::power>();
    case pointwise::gelu_slope: return run.template operator()<pointwise::gelu_slope>();
    case pointwise::gelu_tanh_slope: return run.template operator()<pointwise::gelu_tanh_slope>();
    case pointwise::silu_slope: return run.template operator()<pointwise::silu_slope>();
  }
}

template <class T, class Arch>
void apply(const number_function& f, T* c, extent ldc, extent rows, extent columns) noexcept {
  if (f.own == nullptr)
    return apply<T, Arch>(f.fn, static_cast<T>(f.parameter), c, ldc, rows, columns);
  for (extent m = 0; m < rows; ++m) f.own->apply(c + m * ldc, columns);
}

// Joins c with `other`, of which one row serves every row if ldo = 0. `what` is not map.
template <class T, class Arch>
FMOE_NOINLINE void join(pass_kind what, T* c, extent ldc, extent rows, extent columns,
                        const T* other, extent ldo) noexcept {
  const auto run = [&]<pass_kind What>() {
    for_each_vector<T, Arch>(c, ldc, rows, columns,
                             [&](const vec<T, Arch>& x, extent m, extent n, extent part) {
                               return vector_functions<T, Arch>::template joined<What>(
                                   x, load_part<T, Arch>(other + m * ldo + n, part));
                             });
  };
  switch (what) {
    case pass_kind::map: return;
    case pass_kind::add: return run.template operator()<pass_kind::add>();
    case pass_kind::multiply: return run.template operator()<pass_kind::multiply>();
    case pass_kind::divide: return run.template operator()<pass_kind::divide>();
    case pass_kind::max: return run.template operator()<pass_kind::max>();
    case pass_kind::min: return run.template operator()<pass_kind::min>();
    case pass_kind::keep: return run.template operator()<pass_kind::keep>();
    case pass_kind::drop: return run.template operator()<pass_kind::drop>();
    case pass_kind::above: return run.template operator()<pass_kind::above>();
  }
}

}  // namespace fmoe::cpu
