// SPDX-License-Identifier: MIT
// expect: fmoe::tensor stores float, double, fmoe::bf16 or fmoe::f16
#include <fmoe/tensor.hpp>

#ifdef FMOE_MISUSE
fmoe::tensor<int, 2> x({2, 3});
#else
fmoe::tensor<float, 2> x({2, 3});
#endif
