// SPDX-License-Identifier: MIT
// Clipping of the gradients of a layer that is cut over ranks by the norm of the whole layer's.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <fmoe/distributed/sharded.hpp>
#include <fmoe/optimizers/clip.hpp>

namespace fmoe::detail {

// Returns the names of the parameters of which each rank has a part.
template <class Layer>
std::vector<std::string> names_of_cut(const sharded<Layer>& layer) {
  std::vector<std::string> names;
  for (const released_parameter& p : released_parameters(only_listed(layer.whole))) {
    const any_tensor value = p.parameter.value();
    const auto is_it = [&](const cut_parameter& c) {
      return !value.empty() && value.elements->same_elements(*c.whole.elements);
    };
    if (std::ranges::any_of(layer.parameters, is_it)) names.push_back(p.name.name);
  }
  return names;
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the norm of the gradients of the whole layer, of which each rank has those of its part,
// the same on all ranks. What all ranks have in common counts once. Squares are summed in double,
// over ranks by neighbours first and then by pairs of pairs. One rank has the bits of one process;
// on more, the rounding of sums in double differs. All ranks call it together.
template <class Level = cpu::native, class Layer, detail::has_released_names Gradients>
double global_norm(const sharded<Layer>& layer, const Gradients& gradients) {
  return layer.ranks->guarded([&] {
    std::vector<double> squares = detail::squares_of_gradients<Level>(gradients), parts;
    const auto cut = detail::names_of_cut(layer);
    const auto own =
        detail::trained_parameters(detail::released_parameters(detail::only_listed(gradients)));
    const auto each_part = [&](const auto& f) {
      for (std::size_t k = 0; k < own.size(); ++k)
        if (std::ranges::count(cut, own[k].name.name) > 0) f(squares[k]);
    };
    each_part([&](double s) { parts.push_back(s); });
    layer.ranks->all_reduce(std::span(parts));
    auto part = parts.begin();
    each_part([&](double& s) { s = *part++; });
    double sum = 0;
    for (const double s : squares) sum += s;
    return std::sqrt(sum);
  });
}

// Scales the gradients of a layer that is cut over ranks so that the norm of all of them is at most
// `limit`, and returns the norm that they had: clip_norm for the whole layer, with one all_reduce.
// All ranks call it together. Throws communication_error on all of them for a limit below 0.
//
//   auto part = shard(layer, ranks, 'n');
//   auto step = compile_gradients(part, 256);
//   const double norm = clip_norm(1.0, part, step.gradients());
template <class Level = cpu::native, class Layer, detail::has_released_names Gradients>
double clip_norm(double limit, const sharded<Layer>& layer, Gradients& gradients) {
  return layer.ranks->guarded([&] {
    detail::check_clip_limit(limit);
    const double norm = global_norm<Level>(layer, gradients);
    detail::clip_gradients<Level>(limit, norm, gradients);
    return norm;
  });
}

}  // namespace fmoe
