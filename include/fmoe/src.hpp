// SPDX-License-Identifier: MIT
// Planner, backends and kernels for a program whose other translation units are compiled with
// FMOE_SEPARATE_COMPILATION defined, which makes them small. One translation unit of each
// instruction set that the others are compiled for includes this, or defines FMOE_IMPLEMENTATION.
#pragma once

#include <fmoe/backend/cpu/src.hpp>
#include <fmoe/distributed/src.hpp>
#include <fmoe/gradients/src.hpp>
#include <fmoe/io/src.hpp>
#include <fmoe/layers/src.hpp>
#include <fmoe/optimizers/src.hpp>
#include <fmoe/planner/src.hpp>
#include <fmoe/run/src.hpp>
#if !defined(FMOE_DISPATCH)
#include <fmoe/kernels_src.hpp>
#endif
