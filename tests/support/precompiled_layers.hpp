// SPDX-License-Identifier: MIT
// The tests of layers include this first, precompiled: it holds the headers that most of them
// include. The planner stays out of it, since its inline functions would be instantiated for every
// test.
#pragma once

#include <fmoe/mxd.hpp>

#include "agree.hpp"
