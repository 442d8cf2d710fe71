// SPDX-License-Identifier: MIT
// One expert (i, j) of Monet with its own weights. In both decompositions it is a network of m
// hidden units, V act(U x + c) + b. In the horizontal one U and V are U_i and V_j (Eq. 6); in the
// vertical one they are blocks of both halves (Eq. 13).
#pragma once

#include <fmoe/run/compile.hpp>

namespace fmoe {

template <class T = float>
struct monet_expert {
  parameter<T, 2> encoder;       // d m
  parameter<T, 1> encoder_bias;  // m
  parameter<T, 2> decoder;       // m o
  parameter<T, 1> bias;          // o
  pointwise activation = pointwise::squared_relu;

  // [t, d] -> [t, o].
  auto operator()(const operand_of<2> auto& x) const {
    return einsum<"tm,mo->to">(apply(activation, einsum<"td,dm->tm">(x, encoder) + encoder_bias),
                               decoder) +
           bias;
  }
  auto operator()(const auto&... x) const { return not_rows(x...); }
};

}  // namespace fmoe
