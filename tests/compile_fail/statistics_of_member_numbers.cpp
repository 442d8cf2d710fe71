// SPDX-License-Identifier: MIT
// expect: expert_statistics: members is a range of bool, one a token
// cause: The members of a subpopulation are given as one number.
// cure: Pass a bool for each token of the batch, as a `std::vector<bool>` or a span.
#include <fmoe/analysis/expert_statistics.hpp>

#include <vector>

using namespace fmoe;

int main() {
  const tensor<float, 2> a({4, 5});
  expert_statistics statistics(5);
  statistics.add(a, std::vector<bool>(4));
#ifdef FMOE_MISUSE
  statistics.add(a, 3);
#endif
}
