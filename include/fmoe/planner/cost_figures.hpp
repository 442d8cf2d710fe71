// SPDX-License-Identifier: MIT
// Costs, counted as in the papers: a contraction of a pair costs as many multiply-adds as the
// product of the extents of its distinct labels (a selected label counts its k). Hadamard products,
// sums of one operand, bias, pointwise functions, softmax, entmax, norms and selections are free.
// entmax with another alpha than 1, 1.5 and 2 is free here, too, but takes 50 to 1,000 times as
// long as with these: explain predicts its time.
#pragma once

namespace fmoe {

// The cost of one way to compute an expression.
struct cost_figures {
  double multiply_adds = 0;  // for each token; the FLOPs of the papers
  double once = 0;           // multiply-adds that make weights from parameters, for any tokens
  double parameters = 0;     // numbers stored
  double bytes = 0;          // for all tokens of the expression: rows in and out, and the weights
                             // that they touch, each read once as it is stored

  double flops() const { return 2 * multiply_adds; }
};

}  // namespace fmoe
