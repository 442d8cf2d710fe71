// SPDX-License-Identifier: MIT
// Clipping of gradients by their global norm.
#pragma once

#include <cmath>
#include <vector>

#include <fmoe/gradients/gradient_run.hpp>
#include <fmoe/optimizers/state.hpp>

namespace fmoe::detail {

// Returns the gradients that are not sparse: those of a layer, or those listed by name.
template <has_released_names Gradients>
std::vector<named_tensor> dense_gradients(Gradients& layer) {
  return trained_tensors(released_parameters(layer));
}
inline std::vector<named_tensor> dense_gradients(std::vector<named_tensor> gradients) {
  std::erase_if(gradients, [](const named_tensor& g) { return g.second.empty(); });
  return gradients;
}

template <class Gradients>
concept has_norm = requires(Gradients& g) { dense_gradients(g); };

// Returns the sum of the squares of each gradient of a layer, and of each sparse part of one. Sums
// are in double and in a fixed order. Throws value_error for a gradient of fewer than 32 bits.
template <class Level, class Gradients>
std::vector<double> squares_of_gradients(const Gradients& layer) {
  std::vector<double> squares;
  for (const auto& [name, g] : dense_gradients(only_listed(layer))) {
    expects<value_error>(g.type == dtype::float32 || g.type == dtype::float64,
                         "[clip_norm] the gradient of ", name, " is ", name_of(g.type),
                         " and must be float32 or float64");
    squares.push_back(squares_of<Level>({g.type, g.elements->data(), element_count(g.shape)}));
  }
  for (const sparse_part& g : sparse_parts(layer)) squares.push_back(squares_of<Level>(g.values));
  return squares;
}

// Scales the gradients of a layer so that a norm is at most `limit`.
template <class Level, class Gradients>
void clip_gradients(double limit, double norm, Gradients& layer) {
  const double factor = limit / (norm + 1e-6);
  if (factor >= 1) return;  // gradients with a NaN are scaled
  for (const auto& [name, g] : dense_gradients(layer))
    scale_array<Level>({g.type, g.elements->written(), element_count(g.shape)}, factor);
  for (const sparse_part& g : sparse_parts(layer)) scale_array<Level>(g.values, factor);
}

inline void check_clip_limit(double limit) {
  expects<value_error>(limit >= 0, "[clip_norm] the limit is ", limit, " and must be at least 0");
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the norm of all gradients of one layer or of several, the root of the sum of the squares
// of all elements. Sums are in double and in a fixed order, so that the bits are the same for any
// number of threads. Statistics do not count, and sparse gradients do. Gradients are float or
// double; those of a dynamic::layer are listed as optimizers take them.
template <class Level = cpu::native, detail::has_norm... Gradients>
double global_norm(const Gradients&... gradients) {
  double squares = 0;
  const auto add = [&](const auto& layer) {
    for (const double s : detail::squares_of_gradients<Level>(layer)) squares += s;
  };
  (add(gradients), ...);
  return std::sqrt(squares);
}

// Scales the gradients of one layer, or of several together, so that their global norm is at most
// `limit`, and returns the norm that they had (Pascanu et al., On the difficulty of training
// recurrent neural networks, 2013, Algorithm 1), as torch.nn.utils.clip_grad_norm_ does: all
// elements times min(1, limit / (norm + 1e-6)). Throws value_error for a limit below 0, and for
// gradients of another type, before one is scaled.
//
//   mxd<> model = layer;
//   auto step = compile_gradients(model, 1024);
//   const double norm = clip_norm(1.0, step.gradients());
template <class Level = cpu::native, detail::has_norm... Gradients>
double clip_norm(double limit, Gradients&... gradients) {
  detail::check_clip_limit(limit);
  const double norm = global_norm<Level>(gradients...);
  (detail::clip_gradients<Level>(limit, norm, gradients), ...);
  return norm;
}

}  // namespace fmoe
