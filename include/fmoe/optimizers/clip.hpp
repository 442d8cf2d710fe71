// SPDX-License-Identifier: MIT
// Clipping of gradients by their global norm.
#pragma once

#include <cmath>

#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe {

// Returns the norm of all gradients of one layer or of several, the root of the sum of the squares
// of all elements. Sums are in double and in a fixed order, so that the bits are the same for any
// number of threads. Statistics do not count, and sparse gradients do. Gradients are float or
// double.
template <class Level = cpu::native, detail::has_released_names... Gradients>
double global_norm(const Gradients&... gradients) {
  double squares = 0;
  const auto add = [&](auto layer) {  // a copy, which shares the elements
    for (const auto& p : detail::trained_parameters(detail::released_parameters(layer))) {
      const detail::any_tensor g = p.parameter.value();
      squares += detail::squares_of<Level>(
          {g.type, const_cast<void*>(g.elements->data()), detail::element_count(g.shape)});
    }
    for (const detail::sparse_part& g : detail::sparse_parts(layer))
      squares += detail::squares_of<Level>(g.values);
  };
  (add(gradients), ...);
  return std::sqrt(squares);
}

// Scales the gradients of one layer, or of several together, so that their global norm is at most
// `limit`, and returns the norm that they had (Pascanu et al., On the difficulty of training
// recurrent neural networks, 2013, Algorithm 1), as torch.nn.utils.clip_grad_norm_ does: all
// elements times min(1, limit / (norm + 1e-6)). Throws value_error for a limit below 0.
//
//   mxd<> model = layer;
//   auto step = compile_gradients(model, 1024);
//   const double norm = clip_norm(1.0, step.gradients());
template <class Level = cpu::native, detail::has_released_names... Gradients>
double clip_norm(double limit, Gradients&... gradients) {
  detail::expects<value_error>(limit >= 0, "[clip_norm] the limit is ", limit,
                               " and must be at least 0");
  const double norm = global_norm<Level>(gradients...), factor = limit / (norm + 1e-6);
  const auto scale = [&](auto& layer) {
    for (const auto& p : detail::trained_parameters(detail::released_parameters(layer))) {
      const detail::any_tensor g = p.parameter.value();
      detail::scale_array<Level>({g.type, g.elements->written(), detail::element_count(g.shape)},
                                 factor);
    }
    for (const detail::sparse_part& g : detail::sparse_parts(layer))
      detail::scale_array<Level>(g.values, factor);
  };
  if (!(factor >= 1)) (scale(gradients), ...);  // so do gradients with a NaN
  return norm;
}

}  // namespace fmoe
