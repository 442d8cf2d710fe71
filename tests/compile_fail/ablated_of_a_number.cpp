// SPDX-License-Identifier: MIT
// expect: ablated: the experts are a list of whole numbers, as in ablated(layer, {3, 5})
// cause: One number is given, or several that are no list.
// cure: Put the numbers of the experts in braces, also if there is one.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer{.gate = tensor<float, 2>({8, 5}), .decoder = tensor<float, 2>({16, 3})};
  ablated(layer, {3});
#ifdef FMOE_MISUSE
  ablated(layer, 3);
#endif
}
