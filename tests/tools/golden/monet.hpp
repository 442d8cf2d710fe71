// SPDX-License-Identifier: MIT
// Judges cases of Monet: routers, layers in both decompositions, deleted experts, and layers of a
// whole model.
#pragma once

#include "golden_case.hpp"
#include "report.hpp"

namespace fmoe::golden {

void judge_monet(golden_case& c, report& r);

}  // namespace fmoe::golden
