// SPDX-License-Identifier: MIT
// Makes layers with weights of 8 bits.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include <fmoe/base/stored_as.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/run/compile.hpp>
#include <fmoe/run/read_axes.hpp>

namespace fmoe::detail {

// Returns the axes along which the plan of a layer reads its parameters. Monet's layer is called
// with the routing of one head.
template <class Level, class Layer>
std::vector<read_axis> read_axes_of(Layer& layer) {
  const argument<0, 2> x(1);
  if constexpr (requires { layer.deleted; }) {
    const std::size_t heads = std::exchange(layer.heads, 1);
    const auto y = layer(x, argument<1, 3>(1), argument<2, 3>(1));
    layer.heads = heads;
    return read_axes<Level>(lowered_graph(std::array{y.untyped()}));
  } else {
    return read_axes<Level>(lowered_graph(std::array{layer(x).untyped()}));
  }
}

// Returns a parameter in 8 bits. One that is read in no known way has its blocks along its last
// axis.
template <class Q>
any_tensor quantized(const any_tensor& from, const std::vector<read_axis>& axes) {
  const auto read = std::ranges::find(axes, from.elements.get(), &read_axis::elements);
  extent along = from.shape.size() - 1;
  if (read != axes.end())  // the axis may be a part of the parameter's
    while (along > 0 && read->axis.stride >= axis_of(from.shape, along - 1).stride) --along;
  const block_axis axis = axis_of(from.shape, along);
  return {dtype_of<Q>, from.shape, quantized_storage<Q>(from.numbers(), axis), axis};
}

}  // namespace fmoe::detail

namespace fmoe {

// Returns the layer with its weights in 8 bits: fmoe::q8, with a scale for each block of 32
// weights, or fmoe::q8c, with one for each column. Blocks lie along the axis that the layer's
// product sums over, or along the rows that a selection takes, so that weights stay in 8 bits when
// the layer is compiled. Vectors, such as biases, stay floats, and so do the router of a moe and
// what else chooses its experts. Throws value_error for weights that
// are not finite or, in q8, beyond 127 * 65504.
//
//   const auto small = quantize(load<mxd<>>("mxd.safetensors"));  // an mxd<q8>
//   const auto by_column = quantize<q8c>(layer);
//   save(small, "small.safetensors");
template <class Q = q8, class Level = cpu::native, class Layer>
auto quantize(const Layer& layer) {
  constexpr bool is_layer =
      detail::has_released_names<Layer> && requires { typename detail::stored_as<Q, Layer>::type; };
  static_assert(
      is_layer,
      "quantize takes a layer of floating-point numbers whose type says what it stores, as "
      "fmoe::mxd<float> does; quantized<fmoe::q8>(tensor, axis) takes a tensor");
  if constexpr (is_layer) {
    typename detail::stored_as<Q, Layer>::type result;
    Layer& from = detail::only_listed(layer);
    const auto axes = detail::read_axes_of<Level>(from);
    const auto given = detail::released_parameters(from),
               made = detail::released_parameters(result);
    for (std::size_t i = 0; i < given.size(); ++i) {
      const detail::any_tensor value = given[i].parameter.value();
      if (value.empty()) continue;
      const bool stays = !detail::is_quantized_type(made[i].parameter.type());
      made[i].parameter.assign(stays ? detail::as_floats(value)
                                     : detail::quantized<Q>(value, axes));
    }
    io::copy_settings(io::released_layer(from), io::released_layer(result));
    return result;
  }
}

}  // namespace fmoe
