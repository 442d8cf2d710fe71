// SPDX-License-Identifier: MIT
// expect: a sentence
#ifdef FMOE_MISUSE
template <int N>
struct wall : wall<N - 1> {
  static_assert(N < 0, "a sentence");
};
template <>
struct wall<0> {};
wall<30> x;
#endif
