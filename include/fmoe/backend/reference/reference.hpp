// SPDX-License-Identifier: MIT
// The reference backend: a second opinion on a layer. It runs the planner's program in double by
// plain loops, step by step, and shares no kernel with any other backend. It is slow.
#pragma once

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cpu/native.hpp>

namespace fmoe {

// For compile_options::on, as in compile(layer, 128, {.on = reference()}). Results are rounded once
// to the arithmetic type of the layer, at the end.
template <class Level = cpu::native>
std::shared_ptr<const backend> reference();

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/reference/reference-inl.hpp>
#endif
