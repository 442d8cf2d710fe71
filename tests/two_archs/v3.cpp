// SPDX-License-Identifier: MIT
// Compiled with -march=x86-64-v3.
#include "layer.hpp"

level_result run_v3() { return run_layer(); }
