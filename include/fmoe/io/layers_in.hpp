// SPDX-License-Identifier: MIT
// Finds the layers that a checkpoint holds, by the names and shapes of its tensors. Makes layers in
// outline, which are enough for plans and costs, without reading their weights.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/checkpoint.hpp>

namespace fmoe {

namespace io {

// Returns the arrays that `fill` needs for a layer in outline: the shapes of its matrices, and its
// whole vectors, because layers look at variances.
layer_arrays outlines(const checkpoint& weights, const released_layer& layer,
                      const std::string& prefix);

}  // namespace io

// Makes a layer as load does, but with shapes in place of matrices, for cost and explain. Throws as
// load of a checkpoint does.
template <class Layer>
Layer outline(const io::checkpoint& weights, const load_options& options = {}) {
  Layer layer;
  const io::released_layer released(layer);
  auto from = io::outlines(weights, released, options.prefix);
  io::add_metadata(from, weights);
  io::fill(released, from, options);
  return layer;
}

namespace io {

struct found_layer {
  std::string prefix;              // before its names, as load_options take it
  extent type = 0;                 // its position among the requested types
  std::vector<std::string> names;  // names of its tensors, with the prefix
};

// Orders numbers in names by their value: "layers.2." comes before "layers.10.".
bool comes_before(std::string_view a, std::string_view b);

using use_of_layer = std::function<void(const released_layer&)>;

// Calls `use` with a new layer of this type.
template <class Layer>
void with_new(const use_of_layer& use) {
  Layer layer;
  use(released_layer(layer));
}

using with_new_layer = void (*)(const use_of_layer& use);  // with_new of one type

// The next function for a list of types.
std::vector<found_layer> layers_in(const checkpoint& from,
                                   std::initializer_list<with_new_layer> types);

// Returns the layers of these types that a checkpoint holds completely, by prefix. If the same
// tensors make several layers, as those of a block also make a layer, the layer with more tensors
// counts. It reads headers and vectors. Throws as checkpoint::at does, and conflict for vectors
// that no such layer can have.
template <class... Layers>
std::vector<found_layer> layers_in(const checkpoint& from) {
  return layers_in(from, {with_new<Layers>...});
}

// A layer that a checkpoint nearly holds.
struct near_layer {
  std::string prefix;  // before its names
  extent type = 0;     // its position among the requested types
  std::string fault;   // what load would say: the tensor, and what is wrong with it
};

// The next function for a list of types.
std::optional<near_layer> nearest_layer(const checkpoint& from,
                                        std::initializer_list<with_new_layer> types);

// Returns the layer of these types that a checkpoint comes nearest to without holding it, by the
// number of its names, or nothing if no tensor has a name of such a layer. It tells why layers_in
// finds none. Throws as checkpoint::at does.
template <class... Layers>
std::optional<near_layer> nearest_layer(const checkpoint& from) {
  return nearest_layer(from, {with_new<Layers>...});
}

}  // namespace io
}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/layers_in-inl.hpp>
#endif
