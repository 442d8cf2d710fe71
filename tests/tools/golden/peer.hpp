// SPDX-License-Identifier: MIT
// Judges cases of PEER: scores of keys and experts, the selected experts, their weights and the
// output.
#pragma once

#include "golden_case.hpp"
#include "report.hpp"

namespace fmoe::golden {

void judge_peer(golden_case& c, report& r);

}  // namespace fmoe::golden
