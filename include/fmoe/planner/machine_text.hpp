// SPDX-License-Identifier: MIT
// A machine as text, so that a plan for it can be made elsewhere and later.
#pragma once

#include <iosfwd>
#include <string_view>

#include <fmoe/base/separate.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe {

// Writes the name of a machine and its numbers, each on a line of its own, with all their digits.
//
//   std::ofstream("machine.txt") << this_machine();
std::ostream& operator<<(std::ostream& out, const machine& m);

// Returns the machine that this text describes, for compile_options::as. Throws value_error for
// text that is not that of a machine, and for a number that is not above 0.
//
//   std::ifstream file("machine.txt");
//   const std::string text(std::istreambuf_iterator<char>(file), {});
//   const auto forward = compile(layer, 128, {.as = machine_from(text)});
machine machine_from(std::string_view text);

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/planner/machine_text-inl.hpp>
#endif
