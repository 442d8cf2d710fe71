// SPDX-License-Identifier: MIT
// A layer as files know it, whatever its type: a list of named parameters, and settings. Loading
// and saving work on this, so that they are compiled once instead of once for each type.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/base/functions.hpp>
#include <fmoe/io/metadata.hpp>

namespace fmoe::io {

// Returns K of a layer, or null if it has none.
template <class Layer>
extent* active_of(Layer& layer) {
  if constexpr (requires { layer.active; }) return &layer.active;
  else if constexpr (requires { layer.route.active; }) return &layer.route.active;
  else return nullptr;
}

// Refers to a layer, which must outlive it.
class released_layer {
 public:
  template <has_released_names Layer>
  explicit released_layer(Layer& layer)
      : parameters(released_parameters(layer)),
        active(active_of(layer)),
        layer_(&layer) {
    if constexpr (requires { Layer::released_kinds; }) kinds = Layer::released_kinds;
    if constexpr (requires { Layer::released_unused; }) unused = Layer::released_unused;
    if constexpr (requires { Layer::released_settings; }) settings = Layer::released_settings;
    if constexpr (requires { layer.activation; }) activation = &layer.activation;
    if constexpr (describes_itself<Layer>) {
      read_ = describe_to<Layer, metadata_reader>;
      write_ = describe_to<Layer, metadata_writer>;
    }
  }

  std::vector<released_parameter> parameters;
  std::span<const released_kind> kinds;        // empty for a layer without kinds
  std::span<const std::string_view> unused;    // names of tensors that files have and it ignores
  std::span<const released_setting> settings;  // those of a config.json
  extent* active;                              // K; null for a layer that has none
  pointwise* activation = nullptr;

  // True if the layer names its settings and facts itself.
  bool has_description() const { return read_ != nullptr; }

  // These call the layer's own `describe`, if it has one.
  void describe(const metadata_reader& from) const {
    if (has_description()) read_(layer_, from);
  }
  void describe(const metadata_writer& to) const {
    if (has_description()) write_(layer_, to);
  }

 private:
  template <class Layer, class Metadata>
  static void describe_to(void* layer, const Metadata& metadata) {
    Layer::describe(*static_cast<Layer*>(layer), metadata);
  }

  void* layer_;
  void (*read_)(void* layer, const metadata_reader& from) = nullptr;
  void (*write_)(void* layer, const metadata_writer& to) = nullptr;
};

}  // namespace fmoe::io
