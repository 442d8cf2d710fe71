// SPDX-License-Identifier: MIT
// Everything behind the walls of optimizers but their kernels.
#pragma once

#include <fmoe/optimizers/state-inl.hpp>

#if defined(FMOE_DISPATCH)
#include <fmoe/optimizers/dispatch-inl.hpp>
#endif
