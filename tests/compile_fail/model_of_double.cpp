// SPDX-License-Identifier: MIT
// expect: model: the layer has one input and one result of two axes, in float
// cause: A model holds layers of one form, so that its type says nothing of the layer.
// cure: Use what `compile` returns for layers of double, or of several inputs or results.
#include <fmoe/model.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const mxd<> layer;
  model(layer, 4);
#ifdef FMOE_MISUSE
  const mxd<double> precise;
  model(precise, 4);
#endif
}
