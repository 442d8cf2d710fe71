// SPDX-License-Identifier: MIT
// The kernels of optimizers, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/optimizers/update-inl.hpp>

namespace fmoe::detail {

template void update_weights<cpu::native>(const cpu::sgd_numbers&, const weight_update&);
template void update_weights<cpu::native>(const cpu::adam_numbers&, const weight_update&);
template double squares_of<cpu::native>(const number_array&);
template void scale_array<cpu::native>(const number_array&, double);

}  // namespace fmoe::detail
