// SPDX-License-Identifier: MIT
// What every compiler says in its own words: attributes, pragmas, built-in functions, vectors and
// assembly. Other headers use these names. A compiler that is neither g++ nor clang gets standard
// C++ and what MSVC has in place of them; FMOE_STANDARD_CPP chooses standard C++ everywhere, to
// test it. __builtin_bit_cast, __builtin_FILE, __builtin_LINE and __restrict, which all three
// compilers know, may stand anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <fmoe/base/language.hpp>

#if (defined(__GNUC__) || defined(__clang__)) && !defined(FMOE_STANDARD_CPP)
#define FMOE_GNU 1
#else
#define FMOE_GNU 0
#endif

#if defined(_MSC_VER) && !FMOE_GNU
#define FMOE_MSVC 1
#else
#define FMOE_MSVC 0
#endif

#if defined(__x86_64__) || defined(_M_X64)
#define FMOE_X86_64 1
#else
#define FMOE_X86_64 0
#endif

#if defined(_WIN32)  // whose intrin.h cannot stand behind cpuid.h
#include <intrin.h>
#elif FMOE_X86_64
#include <cpuid.h>
#endif

// Before a function: it is never, or always, a part of its caller, or it is seldom called.
// FMOE_ALWAYS_INLINE stands for `inline`, too. Those of lambdas stand behind the parameters.
#if FMOE_GNU
#define FMOE_NOINLINE [[gnu::noinline]]
#define FMOE_ALWAYS_INLINE [[gnu::always_inline]] inline
#define FMOE_COLD [[gnu::cold]]
#define FMOE_NOINLINE_LAMBDA __attribute__((noinline))
#define FMOE_ALWAYS_INLINE_LAMBDA __attribute__((always_inline))
#elif FMOE_MSVC
#define FMOE_NOINLINE __declspec(noinline)
#define FMOE_ALWAYS_INLINE __forceinline
#define FMOE_COLD __declspec(noinline)
#define FMOE_NOINLINE_LAMBDA
#define FMOE_ALWAYS_INLINE_LAMBDA [[msvc::forceinline]]
#else
#define FMOE_NOINLINE
#define FMOE_ALWAYS_INLINE inline
#define FMOE_COLD
#define FMOE_NOINLINE_LAMBDA
#define FMOE_ALWAYS_INLINE_LAMBDA
#endif

// Behind the name of an alias: objects of any other type may be read as this type.
#if FMOE_GNU
#define FMOE_MAY_ALIAS [[gnu::may_alias]]
#else
#define FMOE_MAY_ALIAS
#endif

// Before the definition of a function: of several in a program the linker keeps one, and it is
// there if only another translation unit calls it. MSVC has no such word, and takes one definition.
#if FMOE_MSVC
#define FMOE_ONE_OF_SEVERAL
#elif defined(_WIN32)
#define FMOE_ONE_OF_SEVERAL [[gnu::used]] inline
#else
#define FMOE_ONE_OF_SEVERAL [[gnu::weak]]
#endif

// Before a function that consists of assembly alone.
#define FMOE_NAKED [[gnu::naked, gnu::noinline]]

// Before a loop of at most n rounds whose arrays belong into registers: all rounds are written out.
#if FMOE_GNU
#define FMOE_PRAGMA_TEXT(text) _Pragma(#text)
#define FMOE_ROUNDS(n) FMOE_PRAGMA_TEXT(GCC unroll n)
#else
#define FMOE_ROUNDS(n)
#endif

// True if statements of assembly in GNU's form compile.
#define FMOE_ASSEMBLY FMOE_GNU

#if defined(__SANITIZE_ADDRESS__)
#define FMOE_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define FMOE_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FMOE_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define FMOE_THREAD_SANITIZER
#endif
#endif

// Before a function that is called only where has_byte_shuffle(): FMOE_SHUFFLED_BYTES(list, places)
// are there the bytes of a vector of 16 that stand at these places, 16 numbers of 0 to 15.
#if FMOE_GNU && FMOE_X86_64
#define FMOE_HAS_BYTE_SHUFFLE 1
#define FMOE_SHUFFLES_BYTES [[gnu::target("ssse3")]]
#define FMOE_SHUFFLED_BYTES(list, places) __builtin_ia32_pshufb128(list, places)
#else
#define FMOE_HAS_BYTE_SHUFFLE 0
#endif

// Ask for the line of the cache at p, which is going to be read soon, or later, or written. (They
// are macros, as an inline function changes the registers that g++ chooses around it.)
#if FMOE_GNU
#define FMOE_PREFETCH(p) __builtin_prefetch(p, 0, 3)
#define FMOE_PREFETCH_FOR_LATER(p) __builtin_prefetch(p, 0, 2)
#define FMOE_PREFETCH_TO_WRITE(p) __builtin_prefetch(p, 1, 3)
#elif FMOE_MSVC && FMOE_X86_64
#define FMOE_PREFETCH(p) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0)
#define FMOE_PREFETCH_FOR_LATER(p) _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1)
#define FMOE_PREFETCH_TO_WRITE(p) FMOE_PREFETCH(p)
#else
#define FMOE_PREFETCH(p) static_cast<void>(p)
#define FMOE_PREFETCH_FOR_LATER(p) static_cast<void>(p)
#define FMOE_PREFETCH_TO_WRITE(p) static_cast<void>(p)
#endif

// The compiler knows nothing of the pointer any more, and keeps it in a register.
#if FMOE_GNU
#define FMOE_KEEP_POINTER(p) asm("" : "+r"(p))
#else
#define FMOE_KEEP_POINTER(p) static_cast<void>(p)
#endif

namespace fmoe::detail {

// Tells the core that its thread waits in a loop.
FMOE_ALWAYS_INLINE void pause_core() noexcept {
#if FMOE_GNU && FMOE_X86_64
  __builtin_ia32_pause();
#elif FMOE_GNU && defined(__aarch64__)
  asm volatile("yield");
#elif FMOE_MSVC && FMOE_X86_64
  _mm_pause();
#elif FMOE_MSVC
  __yield();
#endif
}

// The upper half of a product of 128 bits.
FMOE_ALWAYS_INLINE std::uint64_t upper_product(std::uint64_t a, std::uint64_t b) noexcept {
#if FMOE_GNU && defined(__SIZEOF_INT128__)
  __extension__ using wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<wide>(a) * b >> 64);
#elif FMOE_MSVC
  return __umulh(a, b);
#else
  const std::uint64_t low = 0xffffffff, a0 = a & low, a1 = a >> 32, b0 = b & low, b1 = b >> 32;
  const std::uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & low);
  return a1 * b1 + (middle >> 32) + (other >> 32);
#endif
}

#if FMOE_X86_64
// Sets four words to what `cpuid` tells of part of a leaf. Returns false if the CPU lacks the leaf.
FMOE_ALWAYS_INLINE bool ask_cpuid(unsigned leaf, unsigned part, unsigned (&words)[4]) noexcept {
#if defined(_WIN32)
  int found[4];
  __cpuid(found, static_cast<int>(leaf & 0x80000000));
  if (static_cast<unsigned>(found[0]) < leaf) return false;
  __cpuidex(found, static_cast<int>(leaf), static_cast<int>(part));
  for (int i = 0; i < 4; ++i) words[i] = static_cast<unsigned>(found[i]);
  return true;
#else
  return __get_cpuid_count(leaf, part, &words[0], &words[1], &words[2], &words[3]) != 0;
#endif
}

// True if the CPU has SSSE3, which is asked once.
inline bool has_byte_shuffle() noexcept {
  static const bool has = [] {
    unsigned words[4];
    return ask_cpuid(1, 0, words) && (words[2] >> 9 & 1u) != 0;
  }();
  return has;
}

// The kinds of registers that the system keeps for each thread, as `xgetbv` tells: bits 1 and 2 are
// those of AVX, and 5 to 7 those of AVX-512. The CPU must have said that there is this instruction.
FMOE_ALWAYS_INLINE std::uint64_t kept_registers() noexcept {
#if FMOE_MSVC
  return _xgetbv(0);
#else
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
#endif
}
#endif

// Some numbers that are computed with at once: vector_of<T, N>. A comparison makes integers of the
// same size, which are -1 where it holds.
#if FMOE_GNU
template <class T, std::size_t N>
struct vector_type {
  using type [[gnu::vector_size(N * sizeof(T))]] = T;
};
template <class T, std::size_t N>
using vector_of = typename vector_type<T, N>::type;

// The numbers ... of a and, behind them, b.
#define FMOE_SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
// The numbers of x, each converted to those of another vector.
#define FMOE_CONVERTED(x, type) __builtin_convertvector(x, type)
// The numbers of a where `holds` is -1, and those of b where it is 0.
#define FMOE_CHOSEN(holds, a, b) ((holds) ? (a) : (b))
#else
template <class T, std::size_t N>
struct alignas(N * sizeof(T)) vector_of {
  using mask = vector_of<std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>, N>;

  T numbers[N];

  T& operator[](std::size_t i) { return numbers[i]; }
  const T& operator[](std::size_t i) const { return numbers[i]; }

  template <class Result = vector_of>
  static Result each(auto number) {
    Result r{};
    for (std::size_t i = 0; i < N; ++i) r[i] = number(i);
    return r;
  }
  friend vector_of operator+(const vector_of& a, const vector_of& b) {
    return each([&](std::size_t i) { return a[i] + b[i]; });
  }
  friend vector_of operator*(const T& a, const vector_of& b) {
    return each([&](std::size_t i) { return a * b[i]; });
  }
  friend vector_of& operator+=(vector_of& a, const vector_of& b) { return a = a + b; }
  friend vector_of& operator-=(vector_of& a, const vector_of& b) {
    return a = each([&](std::size_t i) { return a[i] - b[i]; });
  }
  friend vector_of operator&(const vector_of& a, const vector_of& b) {
    return each([&](std::size_t i) { return a[i] & b[i]; });
  }
  friend vector_of operator&(const vector_of& a, const T& b) {
    return each([&](std::size_t i) { return a[i] & b; });
  }
  friend vector_of operator<<(const vector_of& a, int bits) {
    return each([&](std::size_t i) { return a[i] << bits; });
  }
  friend vector_of operator~(const vector_of& a) {
    return each([&](std::size_t i) { return ~a[i]; });
  }
  friend mask operator==(const vector_of& a, const vector_of& b) {
    return each<mask>([&](std::size_t i) { return a[i] == b[i] ? -1 : 0; });
  }
  friend mask operator!=(const vector_of& a, const T& b) {
    return each<mask>([&](std::size_t i) { return a[i] != b ? -1 : 0; });
  }
  friend mask operator<=(const vector_of& a, const vector_of& b) {
    return each<mask>([&](std::size_t i) { return a[i] <= b[i] ? -1 : 0; });
  }
};

template <std::size_t... I, class T, std::size_t N>
vector_of<T, N> shuffled(const vector_of<T, N>& a, const vector_of<T, N>& b) {
  return {{(I < N ? a[I % N] : b[I % N])...}};
}
template <class To, class T, std::size_t N>
To converted(const vector_of<T, N>& x) {
  using number = std::remove_cvref_t<decltype(To{}[0])>;
  return x.template each<To>([&](std::size_t i) { return static_cast<number>(x[i]); });
}
template <class Mask, class T, std::size_t N>
vector_of<T, N> chosen(const Mask& holds, const vector_of<T, N>& a, const vector_of<T, N>& b) {
  return a.each([&](std::size_t i) { return holds[i] != 0 ? a[i] : b[i]; });
}
#define FMOE_SHUFFLED(a, b, ...) (::fmoe::detail::shuffled<__VA_ARGS__>(a, b))
#define FMOE_CONVERTED(x, type) (::fmoe::detail::converted<type>(x))
#define FMOE_CHOSEN(holds, a, b) (::fmoe::detail::chosen(holds, a, b))
#endif

}  // namespace fmoe::detail
