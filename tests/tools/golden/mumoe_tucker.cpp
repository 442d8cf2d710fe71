// SPDX-License-Identifier: MIT
#include "mumoe_kind.hpp"

namespace fmoe::golden {

void judge_mumoe_tucker(golden_case& c, report& r) { judge_kind<tucker_experts>(c, r); }

}  // namespace fmoe::golden
