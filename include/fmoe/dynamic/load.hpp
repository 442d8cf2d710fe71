// SPDX-License-Identifier: MIT
// Loads the layer of a file, of whatever kind it is, and the mixture of a released model's layer.
#pragma once

#include <string>

#include <fmoe/dynamic/layer.hpp>
#include <fmoe/models/layer_in.hpp>
#include <fmoe/models/load_mixture.hpp>

namespace fmoe::dynamic {

// Loads the one layer that a file or a checkpoint holds; see fmoe::load_model, whose errors it
// throws. A Monet layer comes with its router; one that is not the first of its group has none, and
// takes the routing of the first one. The kinds are those in the brackets, or all of fmoe's.
//
//   const dynamic::layer any = dynamic::load<mxd<>, aoe<>>("layer.safetensors");
//   const auto forward = dynamic::compile({any(dynamic::input(0))}, 128);
template <class... Layers>
layer load(const io::checkpoint& from, const load_options& options = {}) {
  const auto erase = [](const auto& l, const std::string&) { return layer(l); };
  return detail::layer_kinds<Layers...>::with_layer_in(from, options, erase);
}
template <class... Layers>
layer load(const std::filesystem::path& file, const load_options& options = {}) {
  return dynamic::load<Layers...>(io::checkpoint::open(file), options);  // and not fmoe::load
}

// Loads the mixture of a released model's layer with weights of this type: float32, bfloat16,
// float16, q8 or q8c. Throws as fmoe::load_mixture does, and value_error for float64.
inline layer load_mixture(const io::checkpoint& model, std::size_t index,
                          dtype type = dtype::float32, const load_options& options = {}) {
  detail::expects<value_error>(type != dtype::float64,
                               "[load_mixture] there are no weights of float64");
  if (detail::is_quantized_type(type))
    return detail::with_quantized_type(
        type, [&]<class Q>(Q*) { return layer(fmoe::load_mixture<Q>(model, index, options)); });
  if (type == dtype::float32) return layer(fmoe::load_mixture(model, index, options));
  if (type == dtype::float16) return layer(fmoe::load_mixture<f16>(model, index, options));
  return layer(fmoe::load_mixture<bf16>(model, index, options));
}
inline layer load_mixture(const std::filesystem::path& model, std::size_t index,
                          dtype type = dtype::float32, const load_options& options = {}) {
  return dynamic::load_mixture(io::checkpoint::open(model), index, type, options);
}

}  // namespace fmoe::dynamic
