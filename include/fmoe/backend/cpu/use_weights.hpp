// SPDX-License-Identifier: MIT
// Which kernels of narrow weights a program has: all that the engine has, or in a header-only
// program those of the types that leaves of its expressions have.
#pragma once

#include <fmoe/base/dtype.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::cpu {

// Gives the program the kernels of weights of these types in arithmetic of T. Whatever compiles the
// graph of an expression calls it first.
template <class T, class Level, detail::type_set Types>
void use_weights();

}  // namespace fmoe::cpu

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/cpu/use_weights-inl.hpp>
#else
template <class T, class Level, fmoe::detail::type_set Types>
void fmoe::cpu::use_weights() {}
#endif
