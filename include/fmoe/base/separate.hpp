// SPDX-License-Identifier: MIT
// How a program compiles definitions once. x.hpp declares functions that are no templates, and
// x-inl.hpp defines them as FMOE_INLINE. By default x.hpp includes x-inl.hpp, and FMOE_INLINE is
// `inline`. With FMOE_SEPARATE_COMPILATION defined it does not: fmoe/src.hpp includes every
// x-inl.hpp, and FMOE_INLINE makes symbols of which the linker keeps one, since a program may
// include fmoe/src.hpp once for each instruction set. A file that defines FMOE_IMPLEMENTATION
// includes it at the end of the first header of fmoe's that it includes: fmoe/implementation.hpp.
#pragma once

#include <fmoe/base/compiler.hpp>

#if defined(FMOE_IMPLEMENTATION) && !defined(FMOE_SEPARATE_COMPILATION)
#define FMOE_SEPARATE_COMPILATION
#endif

#if defined(FMOE_SEPARATE_COMPILATION)
#define FMOE_INLINE FMOE_ONE_OF_SEVERAL
#else
#define FMOE_INLINE inline
#endif
