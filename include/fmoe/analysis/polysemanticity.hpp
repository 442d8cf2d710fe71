// SPDX-License-Identifier: MIT
// Measures how far an expert is from serving only one class (muMoE, Oldfield et al. 2024, Sec. 4.1
// and Eq. 4): if d is the share of each class's accuracy that is lost without the expert, the
// measure is |d - onehot(argmax d)|.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <fmoe/base/checked.hpp>

namespace fmoe {

// Returns d, [c]: (y_c - yhat_c) / y_c, where y are the accuracies of the classes before an expert
// is ablated and yhat those after. d is 0 for a class of accuracy 0, which has nothing to lose.
// Throws shape_error for two numbers of classes.
inline std::vector<double> accuracy_loss(std::span<const double> before,
                                         std::span<const double> after) {
  detail::expects<shape_error>(before.size() == after.size(), "[accuracy_loss] there are ",
                               before.size(), " classes before and ", after.size(), " after");
  std::vector<double> d(before.size());
  for (std::size_t c = 0; c < d.size(); ++c)
    d[c] = before[c] == 0 ? 0 : (before[c] - after[c]) / before[c];
  return d;
}

// Returns |d - onehot(argmax d)|_2; among equal classes argmax is the first. It is 0 for an expert
// whose ablation takes the whole accuracy of one class and nothing of the others. Throws
// value_error if there are no classes.
inline double polysemanticity(std::span<const double> d) {
  detail::expects<value_error>(!d.empty(), "[polysemanticity] there are no classes");
  const auto most = static_cast<std::size_t>(std::ranges::max_element(d) - d.begin());
  double sum = 0;
  for (std::size_t c = 0; c < d.size(); ++c) sum += (d[c] - (c == most)) * (d[c] - (c == most));
  return std::sqrt(sum);
}

// Returns the mean over the experts whose d is not zero, as in the paper's Fig. 3. Throws
// value_error if there are no such experts.
inline double mean_polysemanticity(std::span<const std::vector<double>> d) {
  double sum = 0;
  std::size_t experts = 0;
  for (const auto& expert : d)
    if (std::ranges::any_of(expert, [](double loss) { return loss != 0; })) {
      sum += polysemanticity(expert);
      ++experts;
    }
  detail::expects<value_error>(experts != 0,
                               "[polysemanticity] no expert changes the accuracy of a class");
  return sum / static_cast<double>(experts);
}

}  // namespace fmoe
