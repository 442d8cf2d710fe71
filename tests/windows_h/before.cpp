// SPDX-License-Identifier: MIT
// A program for Windows whose units include windows.h as it is: this one before the headers of
// fmoe, behind.cpp behind them.
#include "windows_first.hpp"

#include "every_header.hpp"
#include "unit.hpp"

bool runs_behind();

int main() {
  const bool before = runs(), behind = runs_behind();
  std::printf("windows.h before fmoe %s, and behind it %s\n", before ? "works" : "FAILS",
              behind ? "works" : "FAILS");
  return before && behind ? 0 : 1;
}
