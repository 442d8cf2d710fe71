// SPDX-License-Identifier: MIT
// expect: kept gives two results: kept(selection).values and kept(selection).indices
// cause: `kept` returns a pair of expressions, and it is used as one. In a tuple the compiler names the member, counted from 0: `Member = 1`.
// cure: Name its parts: `const auto best = kept(top_k(x, 2))`, then `best.values` and `best.indices`.
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const auto best = kept(top_k(x, 2));
  evaluate(std::tuple(relu(x), best.values, best.indices));
#ifdef FMOE_MISUSE
  evaluate(std::tuple(relu(x), best));
#endif
}
