// SPDX-License-Identifier: MIT
// Loads and compiles the layer of a file without saying which kind of layer it is.
#pragma once

#include <string>
#include <utility>

#include <fmoe/models/layer_in.hpp>
#include <fmoe/run/model.hpp>

namespace fmoe {

// Loads the one layer that a file or a checkpoint holds, whatever kind of layer it is, and compiles
// it: a layer of fmoe in float, a Monet layer with its router. Of a model with several layers,
// .prefix in the options says which. The kinds are those in the brackets, which makes a program
// compile faster; without them they are all of fmoe's, of up to four levels. Settings of a Monet
// layer that the metadata do not say are those of config.json beside the file. Throws io::error as
// load does, and missing_tensor or conflict if there is not one layer, and for a Monet layer whose
// router is another layer's, or for a layer whose y has more than two axes; throws as compile does.
//
//   const model any = load_model("layer.safetensors", 128);
//   const model mixture = load_model<aoe<>, moe<>>("layer.safetensors", 128);
template <class... Layers>
model load_model(const io::checkpoint& from, std::size_t tokens, const load_options& options = {},
                 const compile_options& compiled = {}) {
  const auto compile = [&](const auto& layer, const std::string& prefix) -> model {
    if constexpr (requires { layer.has_router(); })
      if (!layer.has_router())
        throw io::error(io::errc::missing_tensor,
                        "is missing, so the layer takes the routing of the first layer of its "
                        "group, and a model takes x alone: dynamic::load loads such a layer",
                        0, prefix + "router.w1.weight", from.file());
    using output = expression_t<decltype(layer(std::declval<const tensor<float, 2>&>()))>;
    if constexpr (output::rank == 2) return model(layer, tokens, compiled);
    else
      throw io::error(io::errc::conflict,
                      "holds a layer whose y has " + std::to_string(output::rank) +
                          " axes, and that of a model has two: load and dynamic::load load it",
                      0, {}, from.file());
  };
  return detail::layer_kinds<Layers...>::with_layer_in(from, options, compile);
}
template <class... Layers>
model load_model(const std::filesystem::path& file, std::size_t tokens,
                 const load_options& options = {}, const compile_options& compiled = {}) {
  return load_model<Layers...>(io::checkpoint::open(file), tokens, options, compiled);
}

}  // namespace fmoe
