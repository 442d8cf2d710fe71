// SPDX-License-Identifier: MIT
// The tests of kernels include this first, precompiled: it holds the headers that all of them
// include.
#pragma once

#include <random>
#include <vector>

#include <fmoe/backend/cpu/kernels/simd.hpp>

#include "catch.hpp"
