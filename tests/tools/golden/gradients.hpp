// SPDX-License-Identifier: MIT
// Judges the gradients of a layer where a case has the authors'.
#pragma once

#include <fmoe/gradients.hpp>
#include <fmoe/io/load.hpp>

#include "golden_case.hpp"
#include "report.hpp"
#include "value_of.hpp"

namespace fmoe::golden {

inline std::vector<double> as_doubles(const any_tensor& t) {
  std::vector<double> r(element_count(t.shape));
  copy_numbers(t.numbers(), r.data());
  return r;
}

// The file holds the gradients under the names of the parameters, so it is read as a layer.
template <class Layer, class T>
void judge_gradients(const golden_case& c, report& r, const Layer& layer, const tensor<T, 2>& x) {
  if (!c.gradients()) return;
  const auto file = io::safetensors::read(*c.gradients());
  io::layer_arrays arrays = io::arrays_in(file);
  arrays.metadata.clear();  // the settings are those of the layer
  auto expected = io::layer_from<Layer>(arrays, {.prefix = "grad64.", .narrow = io::narrow});
  auto found = gradients(layer, x, golden_case::rows<T>(file.at("dy")), judged);
  const auto dx = golden_case::rows<double>(file.at("dx64"));
  r.compare_gradient<T>("x", as_doubles(any_of(found.dx)), as_doubles(any_of(dx)));
  const auto ours = trained_parameters(released_parameters(found.parameters)),
             theirs = trained_parameters(released_parameters(expected));
  if (ours.size() != theirs.size()) return r.fault("there are other gradients");
  for (extent i = 0; i < ours.size(); ++i)
    r.compare_gradient<T>(ours[i].name.name, as_doubles(ours[i].parameter.value()),
                          as_doubles(theirs[i].parameter.value()));
}

}  // namespace fmoe::golden
