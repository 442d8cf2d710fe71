// SPDX-License-Identifier: MIT
// One layer, run by translation units that are compiled for different instruction sets.
#pragma once

#include <string>
#include <vector>

struct level_result {
  std::string architecture;  // of the kernels that ran
  std::vector<float> y;
};

level_result run_v2();
level_result run_v3();
level_result run_v4();
