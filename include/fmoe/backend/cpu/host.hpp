// SPDX-License-Identifier: MIT
// The CPU as a backend. This is its declaration; host-inl.hpp defines it.
#pragma once

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/native.hpp>

namespace fmoe::cpu {

// The CPU that runs the program, in the arithmetic of T, with the kernels of Level: the instruction
// set that the defining translation unit is compiled for.
template <class T, class Level>
std::shared_ptr<const backend> host();

}  // namespace fmoe::cpu

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/cpu/host-inl.hpp>
#endif
