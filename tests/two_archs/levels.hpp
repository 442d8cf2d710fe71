// SPDX-License-Identifier: MIT
// Translation units that are compiled for different instruction sets run the same layer.
#pragma once

#include <string>
#include <vector>

struct level_result {
  std::string architecture;  // architecture of the kernels that ran
  std::vector<float> y;
};

level_result run_v2();
level_result run_v3();
level_result run_v4();
