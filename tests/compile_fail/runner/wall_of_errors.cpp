// SPDX-License-Identifier: MIT
// expect: no matching function for call to
template <int>
struct number {};
void f(number<0>), f(number<1>), f(number<2>), f(number<3>), f(number<4>), f(number<5>),
    f(number<6>), f(number<7>), f(number<8>), f(number<9>), f(number<10>), f(number<11>),
    f(number<12>), f(number<13>), f(number<14>), f(number<15>), f(number<16>), f(number<17>),
    f(number<18>), f(number<19>), f(number<20>), f(number<21>), f(number<22>), f(number<23>),
    f(number<24>), f(number<25>), f(number<26>), f(number<27>), f(number<28>), f(number<29>);
#ifdef FMOE_MISUSE
void g() { f("a wall of candidates"); }
#endif
