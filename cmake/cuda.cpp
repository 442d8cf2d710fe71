// SPDX-License-Identifier: MIT
// fmoe::cuda adds this file to a target where there is no nvcc: kernels run on emulated blocks.
#if !defined(FMOE_SEPARATE_COMPILATION)
#define FMOE_SEPARATE_COMPILATION
#endif
#include <fmoe/backend/cuda/src.hpp>
