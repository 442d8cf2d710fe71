// SPDX-License-Identifier: MIT
// The passes over a finished number, as data of a kernel: all threads take the same branches.
#pragma once

#include <fmoe/backend/cuda/kernels/number.hpp>

namespace fmoe::cuda {

// A function of each of N numbers. They take the same branch, and each is computed while others
// wait.
template <class T, unsigned N>
FMOE_DEVICE void evaluate(pointwise f, T (&x)[N], T parameter) {
#define FMOE_CASE(name)                                                                            \
  case pointwise::name:                                                                            \
    FMOE_UNROLL                                                                                    \
    for (T& of : x)                                                                                \
      of =                                                                                         \
          number_functions<T>::template evaluate<pointwise::name>(number<T>(of), parameter).value; \
    return
  switch (f) {
    FMOE_CASE(relu);
    FMOE_CASE(gelu);
    FMOE_CASE(gelu_tanh);
    FMOE_CASE(silu);
    FMOE_CASE(sigmoid);
    FMOE_CASE(squared_relu);
    FMOE_CASE(exp);
    FMOE_CASE(sqrt);
    FMOE_CASE(inverse_sqrt);
    FMOE_CASE(negate);
    FMOE_CASE(scale);
    FMOE_CASE(shift);
    FMOE_CASE(threshold);
    FMOE_CASE(tanh);
    FMOE_CASE(log);
    FMOE_CASE(abs);
    FMOE_CASE(at_least);
    FMOE_CASE(at_most);
    FMOE_CASE(quotient);
    FMOE_CASE(inverse);
    FMOE_CASE(power);
    FMOE_CASE(gelu_slope);
    FMOE_CASE(gelu_tanh_slope);
    FMOE_CASE(silu_slope);
  }
#undef FMOE_CASE
}

// Each x joined with its o; `what` is not map.
template <class T, unsigned N>
FMOE_DEVICE void join(pass_kind what, T (&x)[N], const T (&o)[N]) {
#define FMOE_CASE(name)                                                                           \
  case pass_kind::name:                                                                           \
    FMOE_UNROLL                                                                                   \
    for (unsigned e = 0; e < N; ++e)                                                              \
      x[e] =                                                                                      \
          number_functions<T>::template joined<pass_kind::name>(number<T>(x[e]), number<T>(o[e])) \
              .value;                                                                             \
    return
  switch (what) {
    case pass_kind::map:
      break;
      FMOE_CASE(add);
      FMOE_CASE(multiply);
      FMOE_CASE(divide);
      FMOE_CASE(max);
      FMOE_CASE(min);
      FMOE_CASE(keep);
      FMOE_CASE(drop);
      FMOE_CASE(above);
  }
#undef FMOE_CASE
}

// One pass: a function of the number, or another operand, whose rows repeat along those of the
// result. In a group each expert has another row of it.
template <class T>
struct pass {
  pass_kind what;
  pointwise f;
  T parameter;
  const T* other = nullptr;
  extent stride = 0, period = 0,
         expert = 0;  // in elements: from row to row, of a row, from expert to expert
};

struct number_place {
  extent row, column;
};

template <class T>
struct passes {
  static constexpr int most = 12;
  pass<T> of[most];
  int count = 0;

  // Changes numbers of an expert; number e stands at place(e), which exists.
  template <unsigned N, class Place>
  FMOE_DEVICE void operator()(T (&x)[N], extent expert, const Place& place) const {
    for (int i = 0; i < count; ++i) {
      const pass<T>& p = of[i];
      if (p.what == pass_kind::map) {
        evaluate(p.f, x, p.parameter);
        continue;
      }
      // A division takes as long as many passes, and most rows do not repeat.
      bool repeats = false;
      FMOE_UNROLL
      for (unsigned e = 0; e < N; ++e) repeats |= place(e).column >= p.period;
      T others[N];
      const auto read = [&](const auto& column_of) {
        FMOE_UNROLL
        for (unsigned e = 0; e < N; ++e) {
          const number_place at = place(e);
          others[e] = p.other[at.row * p.stride + expert * p.expert + column_of(at.column)];
        }
      };
      if (repeats) read([&](extent column) { return column % p.period; });
      else read([](extent column) { return column; });
      join(p.what, x, others);
    }
  }
  // Returns what becomes of one number.
  FMOE_DEVICE T operator()(T x, extent row, extent column, extent expert = 0) const {
    T one[] = {x};
    (*this)(one, expert, [&](unsigned) { return number_place{row, column}; });
    return one[0];
  }
};

}  // namespace fmoe::cuda
