// SPDX-License-Identifier: MIT
#include "every_header.hpp"

#include <windows.h>

#include "unit.hpp"

bool runs_behind() { return runs(); }
