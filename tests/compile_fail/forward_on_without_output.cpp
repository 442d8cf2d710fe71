// SPDX-License-Identifier: MIT
// expect: forward.on(stream) takes the layer's inputs and an output for each result
// cause: A call on a stream returns before its result is there, so it cannot return the result.
// cure: Make an array for the result: `forward.on(stream)(x, y)`.
#include <fmoe/cuda.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

int main() {
  const auto forward = compile(mxd<>{}, 4);
  const tensor<float, 2> x({4, 8});
  tensor<float, 2> y({4, 3});
  CUstream_st* stream = nullptr;
  forward.on(stream)(x, y);
#ifdef FMOE_MISUSE
  forward.on(stream)(x);
#endif
}
