// SPDX-License-Identifier: MIT
// Compiled with -march=x86-64-v2.
#include "layer.hpp"

level_result run_v2() { return run_layer(); }
