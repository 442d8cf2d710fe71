// SPDX-License-Identifier: MIT
// Judges cases of AoE and of the mixtures of experts beside it, including selections, weights,
// loads, entropies and losses.
#pragma once

#include "golden_case.hpp"
#include "report.hpp"

namespace fmoe::golden {

void judge_aoe(golden_case& c, report& r);
void judge_moe(golden_case& c, report& r);

}  // namespace fmoe::golden
