// SPDX-License-Identifier: MIT
// expect: contribution_norms: a Monet layer takes x, g1, g2 and a list of experts, {{i, j}, ...}, because all are too many for a row
// cause: A Monet layer has s^2 experts, 262,144 in the released models, and lists no number for each of them.
// cure: Pass a `std::vector<index_pair>` of the experts of interest, such as `expert_domains` and `expert_correlation` find.
#include <fmoe/monet.hpp>

using namespace fmoe;

int main() {
  const monet_hd<> layer;
  const tensor<float, 2> x({4, 8});
  const tensor<float, 3> g({4, 2, 5});
  layer.bias;
#ifdef FMOE_MISUSE
  layer.contribution_norms(x, g, g);
#endif
}
