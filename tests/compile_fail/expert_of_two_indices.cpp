// SPDX-License-Identifier: MIT
// expect: expert: one index for each level
// cause: The layer has one level of experts, and two indices are given.
// cure: Pass one index for each level; the first template argument of the layer says how many levels there are.
#include <fmoe/mumoe.hpp>

using namespace fmoe;

int main() {
  const cp_experts<1> experts{.experts = {tensor<float, 2>({5, 2})}};
  experts.expert(1);
#ifdef FMOE_MISUSE
  experts.expert(3, 4);
#endif
}
