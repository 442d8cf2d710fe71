// SPDX-License-Identifier: MIT
// Judges cases of muMoE: layers and blocks of CP, tensor-ring, Tucker and dense experts, 1 to 6
// levels, their scores, coefficients and hidden units, single experts, their singular values and
// ranks.
#pragma once

#include "golden_case.hpp"
#include "report.hpp"

namespace fmoe::golden {

void judge_mumoe(golden_case& c, report& r);

// Each judges one kind of experts.
void judge_mumoe_cp(golden_case& c, report& r);
void judge_mumoe_tr(golden_case& c, report& r);
void judge_mumoe_tucker(golden_case& c, report& r);
void judge_mumoe_dense(golden_case& c, report& r);

}  // namespace fmoe::golden
