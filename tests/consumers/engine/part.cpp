// SPDX-License-Identifier: MIT
#include <fmoe/mxd.hpp>

#if defined(XSIMD_HPP)
#error "each file has the kernels"
#endif

fmoe::tensor<double, 1> doubled(const fmoe::tensor<double, 1>& x) { return fmoe::evaluate(2 * x); }
