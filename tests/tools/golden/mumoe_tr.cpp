// SPDX-License-Identifier: MIT
#include "mumoe_kind.hpp"

namespace fmoe::golden {

void judge_mumoe_tr(golden_case& c, report& r) { judge_kind<tr_experts>(c, r); }

}  // namespace fmoe::golden
