// SPDX-License-Identifier: MIT
// The numbers of a step of an optimizer that all elements share.
#pragma once

namespace fmoe::cpu {

// SGD. `damping` is the factor of the gradient in the average; in the first step the average
// becomes the gradient.
struct sgd_numbers {
  double rate, momentum, damping, weight_decay;
  bool nesterov, is_first;
};

// Adam. `pull` is the weight decay that joins the gradient (Adam), and `shrink` the factor of the
// weights before the step (AdamW). `rate` is that of the step over 1 - beta1^t, `root` the square
// root of 1 - beta2^t.
struct adam_numbers {
  double beta1, beta2, epsilon, pull, shrink, rate, root;
};

}  // namespace fmoe::cpu
