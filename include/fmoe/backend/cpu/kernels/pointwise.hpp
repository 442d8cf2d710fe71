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

namespace fmoe::cpu {

// Returns the sum of c[i] x^i.
template <class T, class Arch, extent N>
vec<T, Arch> polynomial(const vec<T, Arch>& x, const T (&c)[N]) {
  vec<T, Arch> sum(c[N - 1]);
#pragma GCC unroll 32
  for (extent i = N - 1; i > 0; --i) sum = fmadd(sum, x, vec<T, Arch>(c[i - 1]));
  return sum;
}

// ln 2 in two parts; an integral exponent times the first one has no rounding error.
template <class T>
inline constexpr T ln2_high = T(sizeof(T) == 4 ? 0.693359375 : 6.93145751953125e-1);
template <class T>
inline constexpr T ln2_low =
    T(sizeof(T) == 4 ? -2.12194440054690583e-4 : 1.42860682030941723212e-6);

// exp(x + low) is 2^exponent (1 + rest), for a small low.
template <class T, class Arch>
struct power {
  vec<T, Arch> rest, exponent;
};

// With x + low = n ln 2 + r, |r| < 0.4, the rest is r + r²/2 + …; the series is cut where what
// follows is below a quarter of the last bit. (xsimd's exp is infinite from 88.376 on and 0 below
// -87.7.)
template <class T, class Arch>
power<T, Arch> power_of(const vec<T, Arch>& x, const vec<T, Arch>& low = vec<T, Arch>(T(0))) {
  using v = vec<T, Arch>;
  constexpr bool single = sizeof(T) == 4;
  constexpr T least = T(single ? -105 : -747),
              most = T(single ? 90 : 711);  // 0 and infinity beyond
  const v bounded = select(x < v(least), v(least), select(x > v(most), v(most), x));
  const v rounder(T(single ? 0x1.8p23 : 0x1.8p52));
  const v n = fmadd(bounded, v(T(1.4426950408889634)), rounder) - rounder;
  const v high = fmadd(n, v(-ln2_high<T>), bounded);
  const v r = fmadd(n, v(-ln2_low<T>), high) + low;
  v rest;
  if constexpr (single) {
    static constexpr T c[] = {1.f / 2, 1.f / 6, 1.f / 24, 1.f / 120, 1.f / 720, 1.f / 5040};
    rest = polynomial<T, Arch>(r, c);
  } else {
    static constexpr T c[] = {1. / 2,        1. / 6,         1. / 24,         1. / 120,
                              1. / 720,      1. / 5040,      1. / 40320,      1. / 362880.,
                              1. / 3628800., 1. / 39916800., 1. / 479001600., 1. / 6227020800.};
    rest = polynomial<T, Arch>(r, c);
  }
  return {fmadd(rest, r * r, r), n};
}

template <class T, class Arch>
vec<T, Arch> exponential(const vec<T, Arch>& x, const vec<T, Arch>& low = vec<T, Arch>(T(0))) {
  const power<T, Arch> p = power_of<T, Arch>(x, low);
  return scale_by_power_of_two(p.rest + vec<T, Arch>(T(1)), p.exponent);
}

// Returns tanh(x) = e / (e + 2) with e = exp(2 |x|) - 1, and the sign of x.
template <class T, class Arch>
vec<T, Arch> hyperbolic_tangent(const vec<T, Arch>& x) {
  using v = vec<T, Arch>;
  const v one(T(1)), most(T(sizeof(T) == 4 ? 10 : 20)), a = abs(x);  // 1 beyond
  const power<T, Arch> p = power_of<T, Arch>(select(a > most, most, a) * v(T(2)));
  const v whole = scale_by_power_of_two(one, p.exponent), e = fmadd(whole, p.rest, whole - one);
  return (e / (e + v(T(2)))) | (x & v(T(-0.0)));
}

// Returns ln x. With x = 2^n (1 + f), 1 + f between sqrt(1/2) and sqrt(2), and s = f / (2 + f),
// ln(1 + f) is 2 s + 2 s³/3 + 2 s⁵/5 + …, which is summed as f - (f²/2 - s (f²/2 + R)), so that the
// greatest term is exact.
template <class T, class Arch>
vec<T, Arch> logarithm(const vec<T, Arch>& x) {
  using v = vec<T, Arch>;
  using limits = std::numeric_limits<T>;
  constexpr T shift = limits::digits;
  const v one(T(1)), half(T(0.5)), zero(T(0)), infinity(limits::infinity());
  const auto subnormal = x < v(limits::min());
  const auto [m, e] =
      parts_of<T, Arch>(select(subnormal, x * v(T(std::uint64_t{1} << limits::digits)), x));
  const auto above = m > v(T(1.4142135623730951));
  const v f = select(above, m * half, m) - one;
  const v n = select(above, e + one, e) - select(subnormal, v(shift), zero);
  const v s = f / (f + v(T(2))), z = s * s, square = half * f * f;
  v r;
  if constexpr (sizeof(T) == 4) {
    static constexpr T c[] = {2.f / 3, 2.f / 5, 2.f / 7, 2.f / 9, 2.f / 11};
    r = polynomial<T, Arch>(z, c) * z;
  } else {
    static constexpr T c[] = {2. / 3,  2. / 5,  2. / 7,  2. / 9,  2. / 11, 2. / 13,
                              2. / 15, 2. / 17, 2. / 19, 2. / 21, 2. / 23};
    r = polynomial<T, Arch>(z, c) * z;
  }
  const v low = fmadd(s, square + r, n * v(ln2_low<T>));
  const v y = fmadd(n, v(ln2_high<T>), f - (square - low));
  const v edge =
      select(x == zero, v(-limits::infinity()), select(x < zero, v(limits::quiet_NaN()), x));
  return select((x > zero) & (x < infinity), y, edge);
}

// Returns Phi(-a) = erfc(a / sqrt 2) / 2 for a >= 0. exp(a²/2) Phi(-a) (a + d) / d is approximated
// by a polynomial in (d - a) / (d + a), which lies between -1 and 1. It interpolates at the
// Chebyshev nodes for a up to 14.5 (double: 38.6), with a relative error of 5e-9 (4e-16). a² is
// split, because its rounding would cost a²/2 units in the last place: the upper half of a has an
// exact square.
template <class T, class Arch>
vec<T, Arch> normal_tail(const vec<T, Arch>& x) {
  using v = vec<T, Arch>;
  const v most(T(sizeof(T) == 4 ? 15 : 40)), a = select(x > most, most, x);  // 0 beyond
  const v d(T(sizeof(T) == 4 ? 2.3 : 4)), t = d / (a + d), q = fmadd(t, v(T(-2)), v(T(1)));
  v p;
  if constexpr (sizeof(T) == 4) {
    static constexpr T c[] = {0.302064828f,    -0.172358255f,    0.0393664804f,   0.0107889234f,
                              -0.00527890854f, -0.00217541945f,  0.000561989316f, 0.00057086484f,
                              4.71623119e-5f,  -0.000101289091f, -3.67287429e-5f};
    p = polynomial<T, Arch>(q, c);
  } else {
    static constexpr T c[] = {
        0.18882128260393782,    -0.15197416049297208,   0.096784350185568534,
        -0.046630464490002776,  0.015099143722069591,   -0.0018850472392853385,
        -8.6992308006713081e-4, 4.0770458519734402e-4,  3.3335969060146764e-5,
        -5.7773542331642541e-5, -4.7646654647709758e-7, 8.7854377414928227e-6,
        1.770959988943491e-7,   -1.4783564469799831e-6, -1.5278264648588545e-7,
        2.5313732231685372e-7,  6.1247644955265325e-8,  -3.726874299536873e-8,
        -1.5360919057022608e-8, 3.2771295804623595e-9,  1.9135082110233679e-9};
    p = polynomial<T, Arch>(q, c);
  }
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const v upper =
      a & v(std::bit_cast<T>(static_cast<bits>(~bits{0} << (sizeof(T) == 4 ? 12 : 27))));
  return t * p *
         exponential<T, Arch>(upper * upper * v(T(-0.5)), (a - upper) * (a + upper) * v(T(-0.5)));
}

// Returns x sigmoid(y). It uses exp(-|y|), which does not overflow and keeps the relative accuracy
// of small results.
template <class T, class Arch>
vec<T, Arch> times_sigmoid(const vec<T, Arch>& x, const vec<T, Arch>& y) {
  using v = vec<T, Arch>;
  const v e = exponential<T, Arch>(negate(abs(y)));
  return select(y < v(T(0)), x * e, x) / (v(T(1)) + e);
}

// The functions of base/functions.hpp. gelu, gelu_tanh and silu of -infinity are NaN, as in
// PyTorch.
template <class T, class Arch, pointwise F>
vec<T, Arch> evaluate(const vec<T, Arch>& x, T parameter) {
  using v = vec<T, Arch>;
  const v zero(T(0)), one(T(1)), p(parameter);
  if constexpr (F == pointwise::relu) return select(x <= zero, zero, x);
  if constexpr (F == pointwise::gelu) {
    const v tail = normal_tail<T, Arch>(abs(x));
    return x * select(x > zero, one - tail, tail);
  }
  if constexpr (F == pointwise::gelu_tanh) {  // (1 + tanh(u)) / 2 is sigmoid(2 u)
    const v cubic = fmadd(x * x * x, v(T(0.044715)), x);
    return times_sigmoid<T, Arch>(x, cubic * v(T(1.5957691216057308)));
  }
  if constexpr (F == pointwise::silu) return times_sigmoid<T, Arch>(x, x);
  if constexpr (F == pointwise::sigmoid) return times_sigmoid<T, Arch>(one, x);
  if constexpr (F == pointwise::squared_relu) {
    const v y = select(x <= zero, zero, x);
    return y * y;
  }
  if constexpr (F == pointwise::exp) return exponential<T, Arch>(x);
  if constexpr (F == pointwise::sqrt) return square_root(x);
  if constexpr (F == pointwise::inverse_sqrt) return one / square_root(x);
  if constexpr (F == pointwise::negate) return negate(x);
  if constexpr (F == pointwise::scale) return x * p;
  if constexpr (F == pointwise::shift) return x + p;
  if constexpr (F == pointwise::threshold) return select(x < p, zero, x);
  if constexpr (F == pointwise::tanh) return hyperbolic_tangent<T, Arch>(x);
  if constexpr (F == pointwise::log) return logarithm<T, Arch>(x);
  if constexpr (F == pointwise::abs) return abs(x);
  if constexpr (F == pointwise::at_least) return select(x < p, p, x);
  if constexpr (F == pointwise::at_most) return select(x > p, p, x);
  if constexpr (F == pointwise::quotient) return x / p;
  if constexpr (F == pointwise::inverse) return p / x;
}

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
                             return evaluate<T, Arch, F>(x, parameter);
                           });
}

template <class T, class Arch>
[[gnu::noinline]] void apply(pointwise f, T parameter, T* c, extent ldc, extent rows,
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
  }
}

template <class T, class Arch>
void apply(const number_function& f, T* c, extent ldc, extent rows, extent columns) noexcept {
  if (f.own == nullptr)
    return apply<T, Arch>(f.fn, static_cast<T>(f.parameter), c, ldc, rows, columns);
  for (extent m = 0; m < rows; ++m) f.own->apply(c + m * ldc, columns);
}

template <class T, class Arch, pass_kind What>
vec<T, Arch> joined(const vec<T, Arch>& x, const vec<T, Arch>& o) {
  const vec<T, Arch> zero(T(0));
  if constexpr (What == pass_kind::add) return x + o;
  if constexpr (What == pass_kind::multiply) return x * o;
  if constexpr (What == pass_kind::divide) return x / o;
  if constexpr (What == pass_kind::max) return select((x > o) | isnan(x), x, o);
  if constexpr (What == pass_kind::min) return select((x < o) | isnan(x), x, o);
  if constexpr (What == pass_kind::keep) return select(o > zero, x, zero);
  if constexpr (What == pass_kind::drop) return select(o > zero, zero, x);
}

// Joins c with `other`, of which one row serves every row if ldo = 0. `what` is not map.
template <class T, class Arch>
[[gnu::noinline]] void join(pass_kind what, T* c, extent ldc, extent rows, extent columns,
                            const T* other, extent ldo) noexcept {
  const auto run = [&]<pass_kind What>() {
    for_each_vector<T, Arch>(
        c, ldc, rows, columns, [&](const vec<T, Arch>& x, extent m, extent n, extent part) {
          return joined<T, Arch, What>(x, load_part<T, Arch>(other + m * ldo + n, part));
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
  }
}

}  // namespace fmoe::cpu
