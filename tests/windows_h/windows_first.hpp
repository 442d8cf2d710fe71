// SPDX-License-Identifier: MIT
// windows.h as it is, without NOMINMAX, for a unit that includes it before the headers of fmoe.
// MinGW's windows.h lacks the macros max and min of Microsoft's in C++, so they are made here,
// after the standard headers: those of g++ do not compile with them, as Microsoft's do.
#pragma once

#include <windows.h>

#include <bits/stdc++.h>

#if !defined(max)
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define min(a, b) (((a) < (b)) ? (a) : (b))
#endif
