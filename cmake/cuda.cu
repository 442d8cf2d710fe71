// SPDX-License-Identifier: MIT
// fmoe::cuda adds this file to a target: nvcc compiles all kernels, and emulated blocks for machines
// that have no GPU.
#if !defined(FMOE_SEPARATE_COMPILATION)
#define FMOE_SEPARATE_COMPILATION
#endif
#include <fmoe/backend/cuda/src.hpp>
