// SPDX-License-Identifier: MIT
// Judges the gradients of a layer where a case has the authors'.
#pragma once

#include <fmoe/dynamic/gradients.hpp>
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

inline dynamic::array array_of(const any_tensor& t) {
  return {t.elements->data(), t.type, t.shape};
}

// Judges whether a layer whose kind is known at run time has these gradients, bit by bit.
template <class Layer>
void judge_dynamic(report& r, const Layer& layer, const tensor<float, 2>& x,
                   const tensor<float, 2>& dy, layer_gradients<Layer, float>& expected) {
  auto step = dynamic::compile_gradients(dynamic::layer(layer), x.shape()[0], judged);
  std::vector<any_tensor> found, wanted{any_of(expected.y), any_of(expected.dx)};
  for (const released_parameter& p : trained_parameters(released_parameters(expected.parameters)))
    wanted.push_back(p.parameter.value());
  std::vector<dynamic::array> arrays;
  for (const any_tensor& t : {any_of(x), any_of(dy)}) arrays.push_back(array_of(t));
  for (const any_tensor& t : wanted)
    found.push_back({t.type, t.shape, std::make_shared<storage>(t.numbers().bytes())});
  for (const any_tensor& t : found) arrays.push_back(array_of(t));
  step(arrays);
  for (extent k = 0; k < found.size(); ++k)
    if (std::memcmp(found[k].elements->data(), wanted[k].elements->data(),
                    wanted[k].numbers().bytes()) != 0)
      r.fault("gradients at run time: " +
              (k < 2 ? std::string(k == 0 ? "y" : "dx") : step.parameters()[k - 2].name) +
              " has other bits");
}

// The file holds the gradients under the names of the parameters, so it is read as a layer.
template <class Layer, class T>
void judge_gradients(const golden_case& c, report& r, const Layer& layer, const tensor<T, 2>& x) {
  if (!c.gradients()) return;
  const auto file = io::safetensors::read(*c.gradients());
  io::layer_arrays arrays = io::arrays_in(file);
  arrays.metadata.clear();  // the settings are those of the layer
  Layer expected;
  io::fill_part(io::released_layer(expected), arrays, {.prefix = "grad64.", .narrow = io::narrow});
  const auto dy = golden_case::rows<T>(file.at("dy"));
  auto found = gradients(layer, x, dy, judged);
  if constexpr (std::is_same_v<T, float>) judge_dynamic(r, layer, x, dy, found);
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
