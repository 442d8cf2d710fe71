// SPDX-License-Identifier: MIT
#include "mumoe_kind.hpp"

namespace fmoe::golden {

void judge_mumoe_cp(golden_case& c, report& r) { judge_kind<cp_experts>(c, r); }

}  // namespace fmoe::golden
