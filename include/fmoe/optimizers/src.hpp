// SPDX-License-Identifier: MIT
// Everything behind the walls of optimizers, instantiated for the instruction set of this
// translation unit.
#pragma once

#include <fmoe/optimizers/state-inl.hpp>

#if defined(FMOE_DISPATCH)
#include <fmoe/optimizers/dispatch-inl.hpp>
#else
#include <fmoe/optimizers/kernels_src.hpp>
#endif
