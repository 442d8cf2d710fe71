// SPDX-License-Identifier: MIT
// The names of a layer's parameters in released weights. The header of a layer holds this data, and
// io reads it.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>

#include <fmoe/arrays/tensor.hpp>

namespace fmoe {

// Says whether a file may lack a tensor.
enum class presence : std::uint8_t { required, optional };

// One tensor of a file. Labels name its axes in the file and, if the order differs, in the layer.
// Equal labels have equal extents in all tensors of a layer; "d(nl)" has an axis of length n times
// l. A tensor with `unless` is read, and required, only if the file has no tensor of that name.
template <class Access>
struct released_name {
  std::string name;
  Access member;  // std::invoke(member, layer) returns the parameter
  presence need;
  std::string_view file_labels, layer_labels = file_labels;
  std::string_view unless = {};
};

template <class Access>
released_name(std::string, Access, presence, std::string_view) -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string_view, std::string_view)
    -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string_view, std::string_view, std::string_view)
    -> released_name<Access>;

// The same for a layer of several parts. Such a layer has a function released(layer, visit), which
// calls visit(tensor, parameter) for each tensor.
struct released_tensor {
  std::string name;
  std::string file_labels, layer_labels = file_labels;
  presence need = presence::required;
  std::string_view unless = {};
};

// Returns a visitor for a part of a layer: it calls `visit` with `prefix` before each name. Labels
// other than the `shared` ones become capitals, because their extents belong to the part alone.
auto released_within(const std::string& prefix, auto& visit, std::string_view shared) {
  return [prefix, &visit, shared](released_tensor t, auto& parameter) {
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

// Calls visit(tensor, parameter) for every tensor that a layer of either form lists.
template <class Layer>
void each_released(Layer& layer, auto& visit) {
  if constexpr (requires { Layer::released(); }) {
    const auto call = [&](const auto& n) {
      visit(released_tensor{n.name, std::string(n.file_labels), std::string(n.layer_labels), n.need,
                            n.unless},
            std::invoke(n.member, layer));
    };
    std::apply([&](const auto&... n) { (call(n), ...); }, Layer::released());
  } else {
    Layer::released(layer, visit);
  }
}

struct ignored_parameter {
  void operator()(const released_tensor&, const auto&) const {}
};

// A layer that files can hold.
template <class Layer>
concept has_released_names = requires { Layer::released(); } ||
                             requires(Layer& l) { Layer::released(l, ignored_parameter()); };

// A kind of layer, as the metadata "kind" of a file names it: `name`, or `also`. A file is of this
// kind if it has the tensor `with` and no tensor of `without`. A layer lists its kinds, and the
// first kind that fits a file counts; a file that fits none does not hold the layer.
struct released_kind {
  std::string_view name, also = {}, with = {};
  std::array<std::string_view, 2> without = {};
};

}  // namespace fmoe
