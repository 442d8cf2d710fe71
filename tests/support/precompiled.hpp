// SPDX-License-Identifier: MIT
// What most tests of layers include. tests/CMakeLists.txt compiles it once for them; each still
// includes what it needs, since not every build does so.
#pragma once

#include <fmoe/fmoe.hpp>

#include "agree.hpp"
