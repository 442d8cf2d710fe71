// SPDX-License-Identifier: MIT
// Compiled with -march=x86-64-v4.
#include "layer.hpp"

level_result run_v4() { return run_layer(); }
