// SPDX-License-Identifier: MIT
// How a layer's parameters are called in released weights: data that a layer's header holds and io
// reads.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <fmoe/arrays/tensor.hpp>

namespace fmoe {

// May a file lack a tensor?
enum class presence : std::uint8_t { required, optional };

// One tensor of a file. A layer lists its own by a function released(layer, visit), which calls
// visit(released_name, parameter) for each. Labels name the tensor's axes in the file and, where
// the order differs, in the layer; equal labels have equal extents in all tensors of a layer;
// "d(nl)" is an axis of n times l. A tensor with `unless` counts, and is required, only where the
// file has no tensor of that name.
struct released_name {
  std::string name;
  presence need = presence::required;
  std::string file_labels, layer_labels = file_labels;
  std::string_view unless = {};
};

// What a file with the tensor `with` and without those of `without` holds, as its metadata "kind"
// calls it: `name`, or `also`. A layer lists its kinds; the first one that the names in the file
// fit counts, and a file that fits none is not the layer's.
struct released_kind {
  std::string_view name, also = {}, with = {};
  std::array<std::string_view, 2> without = {};
};

}  // namespace fmoe

namespace fmoe::detail {

// For a part of a layer: `visit` with `prefix` before the names. Labels other than the `shared`
// ones become capitals, since their extents are the part's own.
auto released_within(const std::string& prefix, auto& visit, std::string_view shared) {
  return [prefix, &visit, shared](released_name t, auto& parameter) {
    t.name = prefix + t.name;
    for (std::string* labels : {&t.file_labels, &t.layer_labels})
      for (char& c : *labels)
        if (shared.find(c) == shared.npos) c = static_cast<char>(c - 'a' + 'A');
    visit(t, parameter);
  };
}
auto released_within(const std::string& prefix, auto& visit) {
  return released_within(prefix, visit, "abcdefghijklmnopqrstuvwxyz");
}

struct ignored_parameter {
  void operator()(const released_name&, const auto&) const {}
};

// A layer that files can hold.
template <class Layer>
concept has_released_names = requires(Layer& l) { Layer::released(l, ignored_parameter()); };

}  // namespace fmoe::detail
