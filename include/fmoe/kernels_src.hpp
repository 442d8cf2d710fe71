// SPDX-License-Identifier: MIT
// The kernels alone, for one of the levels of a program that includes fmoe/src.hpp with
// FMOE_DISPATCH defined. Compile it so that no other symbol than these can be seen by the linker,
// as cmake/engine.cmake does: others take the inline functions of this translation unit for the
// same ones without the level's instructions.
#pragma once

#include <fmoe/backend/cpu/kernels_src.hpp>
#include <fmoe/backend/cpu/narrow_kernels_src.hpp>
#include <fmoe/optimizers/kernels_src.hpp>
