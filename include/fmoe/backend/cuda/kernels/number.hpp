// SPDX-License-Identifier: MIT
// The number of one thread. Each operation is rounded once, and no compiler joins two of them to a
// fused multiply-add, so that a GPU and an emulated block have the bits of the CPU's vectors.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/pointwise_functions.hpp>

// Marks what runs on a GPU, too. Every other compiler sees a plain inline function. Before what
// calls its block stands FMOE_CALLS_BLOCK: nvcc makes two functions of it, and must not complain
// that a GPU's block does not exist on the CPU, and an emulated one not on a GPU.
#if defined(__CUDACC__)
#define FMOE_DEVICE __host__ __device__ inline
#define FMOE_CALLS_BLOCK _Pragma("nv_exec_check_disable")
#else
#define FMOE_DEVICE inline
#define FMOE_CALLS_BLOCK
#endif

// Before a loop: a GPU's compiler writes all rounds, or N at a time. Arrays that lie in registers
// need the first.
#if defined(__CUDA_ARCH__)
#define FMOE_PRAGMA(text) _Pragma(#text)
#define FMOE_UNROLL _Pragma("unroll")
#define FMOE_UNROLL_BY(n) FMOE_PRAGMA(unroll n)
#else
#define FMOE_UNROLL
#define FMOE_UNROLL_BY(n)
#endif

namespace fmoe::cuda {

// Rounded results of one operation. On the CPU the sum and the product are opaque to the compiler.
#if defined(__CUDA_ARCH__)
FMOE_DEVICE float sum_of(float a, float b) { return __fadd_rn(a, b); }
FMOE_DEVICE double sum_of(double a, double b) { return __dadd_rn(a, b); }
FMOE_DEVICE float product_of(float a, float b) { return __fmul_rn(a, b); }
FMOE_DEVICE double product_of(double a, double b) { return __dmul_rn(a, b); }
FMOE_DEVICE float quotient_of(float a, float b) { return __fdiv_rn(a, b); }
FMOE_DEVICE double quotient_of(double a, double b) { return __ddiv_rn(a, b); }
FMOE_DEVICE float root_of(float a) { return __fsqrt_rn(a); }
FMOE_DEVICE double root_of(double a) { return __dsqrt_rn(a); }
FMOE_DEVICE float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FMOE_DEVICE double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
#else
template <class T>
T product_of(T a, T b) {
  T product = a * b;
#if FMOE_ASSEMBLY && FMOE_X86_64
  asm("" : "+x"(product));
#elif FMOE_ASSEMBLY
  asm("" : "+m"(product));
#endif
  return product;
}
template <class T>
T sum_of(T a, T b) {
  return a + b;
}
template <class T>
T quotient_of(T a, T b) {
  return a / b;
}
template <class T>
T root_of(T a) {
  return std::sqrt(a);
}
template <class T>
T fused(T a, T b, T c) {
  return std::fma(a, b, c);
}
#endif

// What a comparison of two numbers says, as a mask of one lane. It must be a literal type: of a
// constexpr function with a variable of another type nvcc makes a function of no instruction.
struct truth {
  bool holds;

  FMOE_DEVICE explicit constexpr truth(bool b) : holds(b) {}

  FMOE_DEVICE friend truth operator&(truth a, truth b) { return truth(a.holds && b.holds); }
  FMOE_DEVICE friend truth operator|(truth a, truth b) { return truth(a.holds || b.holds); }
};
static_assert(truth(true).holds);

template <class T>
struct number {
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

  T value{};

  number() = default;
  FMOE_DEVICE explicit number(T v) : value(v) {}

  FMOE_DEVICE bits to_bits() const { return std::bit_cast<bits>(value); }
  FMOE_DEVICE static number from_bits(bits b) { return number(std::bit_cast<T>(b)); }

  FMOE_DEVICE friend number operator+(number a, number b) {
    return number(sum_of(a.value, b.value));
  }
  FMOE_DEVICE friend number operator-(number a, number b) {
    return number(sum_of(a.value, -b.value));
  }
  FMOE_DEVICE friend number operator*(number a, number b) {
    return number(product_of(a.value, b.value));
  }
  FMOE_DEVICE friend number operator/(number a, number b) {
    return number(quotient_of(a.value, b.value));
  }
  FMOE_DEVICE friend number operator&(number a, number b) {
    return from_bits(a.to_bits() & b.to_bits());
  }
  FMOE_DEVICE friend number operator|(number a, number b) {
    return from_bits(a.to_bits() | b.to_bits());
  }
  FMOE_DEVICE friend truth operator<(number a, number b) { return truth(a.value < b.value); }
  FMOE_DEVICE friend truth operator>(number a, number b) { return truth(a.value > b.value); }
  FMOE_DEVICE friend truth operator<=(number a, number b) { return truth(a.value <= b.value); }
  FMOE_DEVICE friend truth operator==(number a, number b) { return truth(a.value == b.value); }
};

// The operations of pointwise_functions on one number.
template <class T>
struct number_operations {
  using scalar = T;
  using value = number<T>;
  using bits = typename value::bits;
  static constexpr bool single = sizeof(T) == 4;
  static constexpr int digits = single ? 23 : 52;

  struct parts {
    value fraction, exponent;
  };

  FMOE_DEVICE static value fmadd(value a, value b, value c) {
    return value(fused(a.value, b.value, c.value));
  }
  FMOE_DEVICE static value select(truth first, value a, value b) { return first.holds ? a : b; }
  FMOE_DEVICE static value abs(value x) { return value::from_bits(x.to_bits() & (~bits{0} >> 1)); }
  FMOE_DEVICE static truth is_nan(value x) { return truth(x.value != x.value); }
  FMOE_DEVICE static value negate(value x) { return value(-x.value); }
  FMOE_DEVICE static value divide(value a, value b) { return a / b; }
  FMOE_DEVICE static value square_root(value x) { return value(root_of(x.value)); }

  // Returns x 2^n, rounded once, for integral n that are no greater than exponents. It multiplies
  // by two factors, because 2^n itself may not be representable.
  FMOE_DEVICE static value scale_by_power_of_two(value x, value n) {
    const value rounder(T(single ? 0x1.8p23 : 0x1.8p52)),
        half = fmadd(n, value(T(0.5)), rounder) - rounder;
    return x * power_of_two(half) * power_of_two(n - half);
  }

  // Takes apart a positive number that is neither subnormal nor infinite.
  FMOE_DEVICE static parts parts_of(value x) {
    const bits fraction = (bits{1} << digits) - 1;
    const auto exponent = static_cast<std::int32_t>(x.to_bits() >> digits) - (single ? 127 : 1023);
    return {value::from_bits((x.to_bits() & fraction) | value(T(1)).to_bits()),
            value(static_cast<T>(exponent))};
  }

 private:
  // Added to 1.5 2^23, an integer stands in the lowest bits, and a shift moves it into the
  // exponent.
  FMOE_DEVICE static value power_of_two(value n) {
    const value rounder(T(single ? 0x1.8p23 : 0x1.8p52));
    return value::from_bits(((n + rounder).to_bits() << digits) + value(T(1)).to_bits());
  }
};

template <class T>
using number_functions = pointwise_functions<number_operations<T>>;

// Places of a row that is read, as a kernel counts them.
using index = std::uint32_t;

}  // namespace fmoe::cuda
