// SPDX-License-Identifier: MIT
// The functions of one number of functions.hpp, written once for every kind of numbers: vectors of
// a CPU, and the number of a GPU's thread. Each is a fixed sequence of operations that are rounded
// once, so all machines that have a fused multiply-add compute the same bits. Functions are
// constexpr so that a GPU's compiler takes them as they are.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include <fmoe/base/functions.hpp>

namespace fmoe::detail {

// N has the types `scalar` and `value`, the numbers that an operation is done on at a time. A value
// has the operators of numbers but /, and & and | on their bits; a comparison of two is what
// N::select takes. N has these functions: fmadd, divide, select, abs, is_nan, negate, square_root,
// scale_by_power_of_two, parts_of.
template <class N>
class pointwise_functions {
  using T = typename N::scalar;
  using v = typename N::value;
  static constexpr bool single = sizeof(T) == 4;

 public:
  // Returns the sum of c[i] x^i.
  template <extent Terms>
  static constexpr v polynomial(const v& x, const T (&c)[Terms]) {
    v sum(c[Terms - 1]);
    [&]<extent... I>(std::index_sequence<I...>) {
      ((sum = N::fmadd(sum, x, v(c[Terms - 2 - I]))), ...);
    }(std::make_index_sequence<Terms - 1>());
    return sum;
  }

  // ln 2 in two parts; an integral exponent times the first one has no rounding error.
  static constexpr T ln2_high = T(single ? 0.693359375 : 6.93145751953125e-1);
  static constexpr T ln2_low = T(single ? -2.12194440054690583e-4 : 1.42860682030941723212e-6);

  // exp(x + low) is 2^exponent (1 + rest), for a small low.
  struct power {
    v rest, exponent;
  };

  // With x + low = n ln 2 + r, |r| < 0.4, the rest is r + r²/2 + …; the series is cut where what
  // follows is below a quarter of the last bit. (xsimd's exp is infinite from 88.376 on and 0 below
  // -87.7.)
  static constexpr power power_of(const v& x, const v& low = v(T(0))) {
    constexpr T least = T(single ? -105 : -747),
                most = T(single ? 90 : 711);  // 0 and infinity beyond
    const v bounded = N::select(x < v(least), v(least), N::select(x > v(most), v(most), x));
    const v rounder(T(single ? 0x1.8p23 : 0x1.8p52));
    const v n = N::fmadd(bounded, v(T(1.4426950408889634)), rounder) - rounder;
    const v high = N::fmadd(n, v(-ln2_high), bounded);
    const v r = N::fmadd(n, v(-ln2_low), high) + low;
    v rest;
    if constexpr (single) {
      constexpr T c[] = {1.f / 2, 1.f / 6, 1.f / 24, 1.f / 120, 1.f / 720, 1.f / 5040};
      rest = polynomial(r, c);
    } else {
      constexpr T c[] = {1. / 2,        1. / 6,         1. / 24,         1. / 120,
                         1. / 720,      1. / 5040,      1. / 40320,      1. / 362880.,
                         1. / 3628800., 1. / 39916800., 1. / 479001600., 1. / 6227020800.};
      rest = polynomial(r, c);
    }
    return {N::fmadd(rest, r * r, r), n};
  }

  static constexpr v exponential(const v& x, const v& low = v(T(0))) {
    const power p = power_of(x, low);
    return N::scale_by_power_of_two(p.rest + v(T(1)), p.exponent);
  }

  // Returns tanh(x) = e / (e + 2) with e = exp(2 |x|) - 1, and the sign of x.
  static constexpr v hyperbolic_tangent(const v& x) {
    const v one(T(1)), most(T(single ? 10 : 20)), a = N::abs(x);  // 1 beyond
    const power p = power_of(N::select(a > most, most, a) * v(T(2)));
    const v whole = N::scale_by_power_of_two(one, p.exponent),
            e = N::fmadd(whole, p.rest, whole - one);
    return N::divide(e, e + v(T(2))) | (x & v(T(-0.0)));
  }

  // Returns ln x. With x = 2^n (1 + f), 1 + f between sqrt(1/2) and sqrt(2), and s = f / (2 + f),
  // ln(1 + f) is 2 s + 2 s³/3 + 2 s⁵/5 + …, which is summed as f - (f²/2 - s (f²/2 + R)), so that
  // the greatest term is exact.
  static constexpr v logarithm(const v& x) {
    using limits = std::numeric_limits<T>;
    constexpr T shift = limits::digits;
    const v one(T(1)), half(T(0.5)), zero(T(0)), infinity(limits::infinity());
    const auto subnormal = x < v(limits::min());
    const auto [m, e] =
        N::parts_of(N::select(subnormal, x * v(T(std::uint64_t{1} << limits::digits)), x));
    const auto above = m > v(T(1.4142135623730951));
    const v f = N::select(above, m * half, m) - one;
    const v n = N::select(above, e + one, e) - N::select(subnormal, v(shift), zero);
    const v s = N::divide(f, f + v(T(2))), z = s * s, square = half * f * f;
    v r;
    if constexpr (single) {
      constexpr T c[] = {2.f / 3, 2.f / 5, 2.f / 7, 2.f / 9, 2.f / 11};
      r = polynomial(z, c) * z;
    } else {
      constexpr T c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                         2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
      r = polynomial(z, c) * z;
    }
    const v low = N::fmadd(s, square + r, n * v(ln2_low));
    const v y = N::fmadd(n, v(ln2_high), f - (square - low));
    const v edge = N::select(x == zero, v(-limits::infinity()),
                             N::select(x < zero, v(limits::quiet_NaN()), x));
    return N::select((x > zero) & (x < infinity), y, edge);
  }

  // Returns Phi(-a) = erfc(a / sqrt 2) / 2 for a >= 0. exp(a²/2) Phi(-a) (a + d) / d is
  // approximated by a polynomial in (d - a) / (d + a), which lies between -1 and 1. It interpolates
  // at the Chebyshev nodes for a up to 14.5 (double: 38.6), with a relative error of 5e-9 (4e-16).
  // a² is split, because its rounding would cost a²/2 units in the last place: the upper half of a
  // has an exact square.
  static constexpr v normal_tail(const v& x) {
    const v most(T(single ? 15 : 40)), a = N::select(x > most, most, x);  // 0 beyond
    const v d(T(single ? 2.3 : 4)), t = N::divide(d, a + d), q = N::fmadd(t, v(T(-2)), v(T(1)));
    v p;
    if constexpr (single) {
      constexpr T c[] = {0.302064828f,    -0.172358255f,    0.0393664804f,   0.0107889234f,
                         -0.00527890854f, -0.00217541945f,  0.000561989316f, 0.00057086484f,
                         4.71623119e-5f,  -0.000101289091f, -3.67287429e-5f};
      p = polynomial(q, c);
    } else {
      constexpr T c[] = {0.18882128260393782,    -0.15197416049297208,   0.096784350185568534,
                         -0.046630464490002776,  0.015099143722069591,   -0.0018850472392853385,
                         -8.6992308006713081e-4, 4.0770458519734402e-4,  3.3335969060146764e-5,
                         -5.7773542331642541e-5, -4.7646654647709758e-7, 8.7854377414928227e-6,
                         1.770959988943491e-7,   -1.4783564469799831e-6, -1.5278264648588545e-7,
                         2.5313732231685372e-7,  6.1247644955265325e-8,  -3.726874299536873e-8,
                         -1.5360919057022608e-8, 3.2771295804623595e-9,  1.9135082110233679e-9};
      p = polynomial(q, c);
    }
    using bits = std::conditional_t<single, std::uint32_t, std::uint64_t>;
    const v upper = a & v(std::bit_cast<T>(static_cast<bits>(~bits{0} << (single ? 12 : 27))));
    return t * p * exponential(upper * upper * v(T(-0.5)), (a - upper) * (a + upper) * v(T(-0.5)));
  }

  // Returns x sigmoid(y). It uses exp(-|y|), which does not overflow and keeps the relative
  // accuracy of small results.
  static constexpr v times_sigmoid(const v& x, const v& y) {
    const v e = exponential(N::negate(N::abs(y)));
    return N::divide(N::select(y < v(T(0)), x * e, x), v(T(1)) + e);
  }

  // Returns x within [-most, most], where a slope has its last digits; NaN stays.
  static constexpr v within(const v& x, T most) {
    return N::select(x > v(most), v(most), N::select(x < v(-most), v(-most), x));
  }

  // Returns s + x s (1 - s) du with s = sigmoid(u): the slope of x s where du is that of u. Both
  // sigmoids are computed, so that neither cancels.
  static constexpr v gated_slope(const v& x, const v& u, const v& du) {
    const v one(T(1)), s = times_sigmoid(one, u);
    return N::fmadd(x * du, s * times_sigmoid(one, N::negate(u)), s);
  }

  // The functions of base/functions.hpp. gelu, gelu_tanh and silu of -infinity are NaN, as in
  // PyTorch.
  template <pointwise F>
  static constexpr v evaluate(const v& x, T parameter) {
    const v zero(T(0)), one(T(1)), p(parameter);
    if constexpr (F == pointwise::relu) return N::select(x <= zero, zero, x);
    if constexpr (F == pointwise::gelu) {
      const v tail = normal_tail(N::abs(x));
      return x * N::select(x > zero, one - tail, tail);
    }
    if constexpr (F == pointwise::gelu_tanh) {  // (1 + tanh(u)) / 2 is sigmoid(2 u)
      const v cubic = N::fmadd(x * x * x, v(T(0.044715)), x);
      return times_sigmoid(x, cubic * v(T(1.5957691216057308)));
    }
    if constexpr (F == pointwise::silu) return times_sigmoid(x, x);
    if constexpr (F == pointwise::sigmoid) return times_sigmoid(one, x);
    if constexpr (F == pointwise::squared_relu) {
      const v y = N::select(x <= zero, zero, x);
      return y * y;
    }
    if constexpr (F == pointwise::exp) return exponential(x);
    if constexpr (F == pointwise::sqrt) return N::square_root(x);
    if constexpr (F == pointwise::inverse_sqrt) return N::divide(one, N::square_root(x));
    if constexpr (F == pointwise::negate) return N::negate(x);
    if constexpr (F == pointwise::scale) return x * p;
    if constexpr (F == pointwise::shift) return x + p;
    if constexpr (F == pointwise::threshold) return N::select(x < p, zero, x);
    if constexpr (F == pointwise::tanh) return hyperbolic_tangent(x);
    if constexpr (F == pointwise::log) return logarithm(x);
    if constexpr (F == pointwise::abs) return N::abs(x);
    if constexpr (F == pointwise::at_least) return N::select(x < p, p, x);
    if constexpr (F == pointwise::at_most) return N::select(x > p, p, x);
    if constexpr (F == pointwise::quotient) return N::divide(x, p);
    if constexpr (F == pointwise::inverse) return N::divide(p, x);
    if constexpr (F == pointwise::power)
      return N::select(x <= zero, zero, exponential(p * logarithm(x)));
    if constexpr (F == pointwise::gelu_slope) {  // Phi(x) + x phi(x)
      const v inside = within(x, T(single ? 15 : 40)), tail = normal_tail(N::abs(inside)),
              density = exponential(inside * inside * v(T(-0.5))) * v(T(0.39894228040143268));
      return N::fmadd(inside, density, N::select(inside > zero, one - tail, tail));
    }
    if constexpr (F == pointwise::gelu_tanh_slope) {
      const v inside = within(x, T(40)), scale(T(1.5957691216057308)), squares = inside * inside;
      return gated_slope(inside, N::fmadd(squares * inside, v(T(0.044715)), inside) * scale,
                         N::fmadd(squares, v(T(0.134145)), one) * scale);
    }
    if constexpr (F == pointwise::silu_slope) {
      const v inside = within(x, T(single ? 110 : 760));
      return gated_slope(inside, inside, one);
    }
  }

  // x joined with o, by a kind of pass that is not map.
  template <pass_kind What>
  static constexpr v joined(const v& x, const v& o) {
    const v zero(T(0));
    if constexpr (What == pass_kind::add) return x + o;
    if constexpr (What == pass_kind::multiply) return x * o;
    if constexpr (What == pass_kind::divide) return N::divide(x, o);
    if constexpr (What == pass_kind::max) return N::select((x > o) | N::is_nan(x), x, o);
    if constexpr (What == pass_kind::min) return N::select((x < o) | N::is_nan(x), x, o);
    if constexpr (What == pass_kind::keep) return N::select(o > zero, x, zero);
    if constexpr (What == pass_kind::drop) return N::select(o > zero, zero, x);
    if constexpr (What == pass_kind::above) return N::select((x > o) | N::is_nan(x), x, zero);
  }
};

}  // namespace fmoe::detail
