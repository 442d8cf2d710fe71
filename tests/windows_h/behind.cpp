// SPDX-License-Identifier: MIT
// The unit of this program that includes windows.h behind the headers of fmoe.
#include "every_header.hpp"

#include <windows.h>

#include "unit.hpp"

bool runs_behind() { return runs(); }
