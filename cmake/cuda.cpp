// SPDX-License-Identifier: MIT
// fmoe::cuda adds this file to a target: nvcc compiles it for GPUs, or the host's compiler for
// emulated blocks.
#define FMOE_SEPARATE_COMPILATION
#include <fmoe/backend/cuda/src.hpp>
