// SPDX-License-Identifier: MIT
#include "mumoe.hpp"

namespace fmoe::golden {

void judge_mumoe(golden_case& c, report& r) {
  const std::string kind = c.required("kind");
  if (kind == "cp") judge_mumoe_cp(c, r);
  else if (kind == "tr") judge_mumoe_tr(c, r);
  else if (kind == "tucker") judge_mumoe_tucker(c, r);
  else if (kind == "dense") judge_mumoe_dense(c, r);
  else throw not_understood("kind " + kind);
}

}  // namespace fmoe::golden
