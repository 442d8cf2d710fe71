// SPDX-License-Identifier: MIT
// The headers that the files of this folder include, precompiled: most of them take seconds. It
// has no #pragma once, of which g++ warns in a header that is compiled by itself.

#include <array>
#include <vector>

#include <fmoe/analysis/expert_statistics.hpp>
#include <fmoe/eigen.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/rank.hpp>
#include <fmoe/xtensor.hpp>
