// SPDX-License-Identifier: MIT
// expect: forward.on takes a stream: a CUstream_st* with <fmoe/cuda.hpp>
// cause: A call joins a stream of CUDA, and the program passes a pointer to something else.
// cure: Pass a `cudaStream_t`, or a `cuda::stream`.
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
  int number = 1;
  forward.on (&number)(x, y);
#endif
}
