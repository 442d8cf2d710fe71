// SPDX-License-Identifier: MIT
// Costs, counted as the papers count: a pairwise contraction costs the product of its distinct
// labels' extents in multiply-adds (a selected label counts its k). Hadamard products, sums of one
// operand, bias and pointwise functions are free.
#pragma once

namespace fmoe {

// The cost of one way of computing an expression.
struct cost_figures {
  double multiply_adds = 0;  // per token; the papers' FLOPs
  double once = 0;           // multiply-adds that make weights from parameters, for any tokens
  double parameters = 0;     // numbers stored
  double bytes = 0;          // for all tokens of the expression: rows in and out, and the weights
                             // that they touch, each read once as it is stored

  double flops() const { return 2 * multiply_adds; }
};

}  // namespace fmoe
