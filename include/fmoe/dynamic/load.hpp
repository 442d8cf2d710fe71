// SPDX-License-Identifier: MIT
// Loads the layer of a file, of whatever kind it is.
#pragma once

#include <string>

#include <fmoe/dynamic/layer.hpp>
#include <fmoe/models/layer_in.hpp>

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

}  // namespace fmoe::dynamic
