// SPDX-License-Identifier: MIT
// One unit with windows.h, every header of fmoe behind it, and the quickstart, for
// scripts/matrix mingw-quickstart.
#include "windows_first.hpp"

#include "every_header.hpp"
#include "unit.hpp"

[[maybe_unused]] const auto compiled_too = &runs;

#include "../../examples/quickstart.cpp"
