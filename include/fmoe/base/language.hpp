// SPDX-License-Identifier: MIT
// Says in one sentence that a compiler or a system cannot build fmoe. After #error a compiler goes
// on and complains about all that follows; it stops at a file that it does not find.
#pragma once

#if defined(_MSC_VER) && !defined(__clang__)
#include "fmoe does not compile with MSVC yet: use g++ or clang++"
#elif __cplusplus < 202002L
#include "fmoe needs C++20: compile with -std=c++20"
#elif !__has_include(<unistd.h>)
#include "fmoe does not run on this system yet: it needs POSIX, as Linux has it"
#endif
