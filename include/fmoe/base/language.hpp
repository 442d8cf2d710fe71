// SPDX-License-Identifier: MIT
// Says in one sentence that a compiler or a system cannot build fmoe. After #error a compiler goes
// on and complains about all that follows; it stops at a file that it does not find.
#pragma once

#if !defined(_MSVC_LANG) && __cplusplus < 202002L
#include "fmoe needs C++20: compile with -std=c++20"
#elif defined(_MSVC_LANG) && _MSVC_LANG < 202002L
#include "fmoe needs C++20: compile with /std:c++20"
#elif !defined(__cpp_exceptions) && !defined(_CPPUNWIND)
#include "fmoe needs exceptions: compile without -fno-exceptions"
#elif !defined(_WIN32) && !__has_include(<unistd.h>)
#include "fmoe does not run on this system: it needs POSIX or Windows"
#elif defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ < 8 || defined(_WIN32) && !defined(_WIN64)
#include "fmoe needs a CPU of 64 bits: its sizes and its files have 64 bits"
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#include "fmoe needs a little-endian CPU: the files that it reads have this order of bytes"
#endif

// windows.h makes macros of min and max, unless it is told not to, before this header or behind it.
#if defined(_WIN32)
#undef min
#undef max
#if !defined(NOMINMAX)
#define NOMINMAX
#endif
#endif

#include <version>
#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 16000
#include "fmoe needs libc++ 16 or newer: older ones lack the algorithms of std::ranges"
#endif
