// SPDX-License-Identifier: MIT
// expect: no matching function for call to
template <int>
struct number {};
void f(number<0>), f(number<1>), f(number<2>), f(number<3>), f(number<4>), f(number<5>),
    f(number<6>), f(number<7>), f(number<8>);
#ifdef FMOE_MISUSE
void g() { f("a wall of candidates"); }
#endif
