// SPDX-License-Identifier: MIT
// The statistics of a call's tokens, which batch norm takes in training (Ioffe and Szegedy, Batch
// Normalization, 2015, Algorithm 1). A layer that runs takes running statistics instead.
#pragma once

#include <fmoe/expr/einsum.hpp>
#include <fmoe/expr/pointwise.hpp>

namespace fmoe::detail {

// How many scores of a call each statistic is made of. Kept says which axes the statistics have:
// "tn->n" for one of each expert.
template <subscripts Kept>
auto batch_count(const operand auto& scores) {
  return einsum<Kept>(0 * scores + 1);
}

template <subscripts Kept>
auto batch_mean(const operand auto& scores) {
  return einsum<Kept>(scores) / batch_count<Kept>(scores);
}

// The mean of the squares of scores whose mean was subtracted: the biased variance.
template <subscripts Kept>
auto batch_variance(const operand auto& centred) {
  return einsum<Kept>(centred * centred) / batch_count<Kept>(centred);
}

// The same with the divisor of a sample, one less; of a single score it is NaN.
template <subscripts Kept>
auto unbiased_variance(const operand auto& centred) {
  return einsum<Kept>(centred * centred) / (batch_count<Kept>(centred) - 1);
}

}  // namespace fmoe::detail
