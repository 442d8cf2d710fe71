// SPDX-License-Identifier: MIT
// The shapes that tuning has found for plans, as text that outlives the process.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/planner/options.hpp>

namespace fmoe {

// Returns what this process knows of tuned layers, a line for each: the layer's key and the shape
// that was the fastest. Write it to a file and give it to use_tuned_shapes in the next process,
// which then does not tune again.
//
//   const auto forward = compile(layer, 128, {.tune = true});
//   std::ofstream("tuned.txt") << tuned_shapes();
std::string tuned_shapes();

// Layers that are compiled from now on take these shapes. A line that belongs to no layer of this
// process has no effect. Throws value_error for text that tuned_shapes did not write.
void use_tuned_shapes(std::string_view text);

}  // namespace fmoe

namespace fmoe::planner {

struct program;

// Names a program, its calls and its machine, so that programs that may be tuned differently have
// different keys.
std::string tuning_key(const program& p, const plan_options& how);

// The shape of this program, if one is known.
std::optional<plan_shape> tuned_shape(const program& p, const plan_options& how);
void keep_tuned_shape(const std::string& key, const plan_shape& shape);

}  // namespace fmoe::planner

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/planner/tuned_shapes-inl.hpp>
#endif
