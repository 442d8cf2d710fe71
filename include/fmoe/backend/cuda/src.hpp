// SPDX-License-Identifier: MIT
// The kernels and the backend of GPUs, for one translation unit of a program that is compiled with
// FMOE_SEPARATE_COMPILATION: by nvcc for GPUs, by any other compiler for emulated blocks.
#pragma once

#include <fmoe/backend/cuda/device-inl.hpp>
