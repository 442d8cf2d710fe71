// SPDX-License-Identifier: MIT
// Judges cases of MxD's family: MxD (MLP and GLU), transcoders and sparse autoencoders, their
// intermediates, single experts and steering.
#pragma once

#include "golden_case.hpp"
#include "report.hpp"

namespace fmoe::golden {

void judge_mxd(golden_case& c, report& r);

}  // namespace fmoe::golden
