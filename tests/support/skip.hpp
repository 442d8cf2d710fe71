// SPDX-License-Identifier: MIT
// A case that cannot run here, because its data are missing, says so and returns:
//
//   if (!std::filesystem::exists(file)) return skip_case("there is no " + file.string());
//
// If no case fails, the program then exits with 77, which ctest shows as skipped. So such cases
// are in a file of their own: those beside them would not be seen to pass.
#pragma once

#include <string>

namespace fmoe::test {

void skip_case(const std::string& reason);  // in main.cpp

}  // namespace fmoe::test
