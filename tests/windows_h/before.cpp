// SPDX-License-Identifier: MIT
// A program for Windows whose units include windows.h as it is, without NOMINMAX: this one before
// the headers of fmoe, behind.cpp behind them. MinGW's windows.h lacks the macros max and min of
// Microsoft's in C++, so they are made here, after the standard headers: those of g++ do not
// compile with them, as Microsoft's do.
#include <windows.h>

#include <bits/stdc++.h>

#if !defined(max)
#define max(a, b) (((a) > (b)) ? (a) : (b))
#define min(a, b) (((a) < (b)) ? (a) : (b))
#endif

#include "every_header.hpp"
#include "unit.hpp"

bool runs_behind();

int main() {
  const bool before = runs(), behind = runs_behind();
  std::printf("windows.h before fmoe %s, and behind it %s\n", before ? "works" : "FAILS",
              behind ? "works" : "FAILS");
  return before && behind ? 0 : 1;
}
