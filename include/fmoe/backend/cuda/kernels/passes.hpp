// SPDX-License-Identifier: MIT
// The passes over a finished number, as data of a kernel: all threads take the same branches.
#pragma once

#include <fmoe/backend/cuda/kernels/number.hpp>

namespace fmoe::cuda {

// A function of one number.
template <class T>
FMOE_DEVICE T evaluate(pointwise f, T x, T parameter) {
  const number<T> of(x);
#define FMOE_CASE(name) \
  case pointwise::name: \
    return number_functions<T>::template evaluate<pointwise::name>(of, parameter).value
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
  return x;
}

// x joined with o; `what` is not map.
template <class T>
FMOE_DEVICE T joined(pass_kind what, T x, T o) {
  const number<T> a(x), b(o);
#define FMOE_CASE(name) \
  case pass_kind::name: return number_functions<T>::template joined<pass_kind::name>(a, b).value
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
  }
#undef FMOE_CASE
  return x;
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

template <class T>
struct passes {
  static constexpr int most = 12;
  pass<T> of[most];
  int count = 0;

  // Returns what becomes of x, the number at `column` of a row of an expert.
  FMOE_DEVICE T operator()(T x, extent row, extent column, extent expert = 0) const {
    for (int i = 0; i < count; ++i) {
      const pass<T>& p = of[i];
      if (p.what == pass_kind::map) x = evaluate(p.f, x, p.parameter);
      else x = joined(p.what, x, p.other[row * p.stride + expert * p.expert + column % p.period]);
    }
    return x;
  }
};

}  // namespace fmoe::cuda
