// SPDX-License-Identifier: MIT
// The names of a layer's parameters in released weights. The header of a layer holds this data, and
// io reads it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/base/refused_stream.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe {

// Says whether a file may lack a tensor.
enum class presence : std::uint8_t { required, optional };

// One tensor of a file. A layer lists its tensors in a function released(layer, visit), which calls
// visit(released_name, parameter) for each. Labels name the axes of a tensor in the file and, if
// the order differs, in the layer. Equal labels have equal extents in all tensors of a layer;
// "d(nl)" has an axis of length n times l. A tensor with `unless` is read, and required, only if
// the file has no tensor of that name.
struct released_name {
  std::string name;
  presence need = presence::required;
  std::string file_labels, layer_labels = file_labels;
  std::string_view unless = {};
  bool trained = true;      // false for statistics, which have no gradient
  std::string blocks = {};  // "hs": axis h has a block of neighbours for each entry of s
  bool rounded = true;      // false: saved in no type that would round the layer's numbers
};

// The name of a statistic that a layer holds and no step of training changes.
inline released_name statistic(released_name n) {
  n.trained = false;
  return n;
}

// The name of what decides which experts a token gets, and of a gate that weighs an expert. A layer
// whose type has 16 or 8 bits holds it in floats, and files do so, too: rounding it would give
// tokens other experts.
inline released_name unrounded(released_name n) {
  n.rounded = false;
  return n;
}

// The name of a tensor one of whose axes is made of blocks, one for each entry of another label: of
// "hs", an axis h of s blocks. A layer that is cut along s is cut between the blocks.
inline released_name in_blocks(std::string_view blocks, released_name n) {
  n.blocks = blocks;
  return n;
}

// A kind of layer, as the metadata "kind" of a file names it: `name`, or `also`. A file is of this
// kind if it has the tensor `with` and no tensor of `without`. A layer lists its kinds, and the
// first kind that fits a file counts; a file that fits none does not hold the layer.
struct released_kind {
  std::string_view name, also = {}, with = {};
  std::array<std::string_view, 2> without = {};
};

// A setting in the config.json of a model of this type, and the name that the metadata of a file
// have for it. A layer lists those that it has in `released_settings`.
struct released_setting {
  std::string_view model_type, in_config, in_metadata;
};

}  // namespace fmoe

namespace fmoe::detail {

// Returns the name as a part of a layer has it there: with `prefix` before it. Labels other than
// the `shared` ones become capitals, because their extents belong to the part alone.
inline released_name within(std::string_view prefix, released_name n, std::string_view shared) {
  n.name.insert(0, prefix);
  for (std::string* labels : {&n.file_labels, &n.layer_labels, &n.blocks})
    for (char& c : *labels)
      if (shared.find(c) == shared.npos) c = static_cast<char>(c - 'a' + 'A');
  return n;
}

// Returns a visitor for a part of a layer: it calls `visit` with the names that `within` returns.
// By default all labels are shared. The prefix must outlive the visitor.
auto released_within(std::string_view prefix, auto& visit,
                     std::string_view shared = "abcdefghijklmnopqrstuvwxyz") {
  return [prefix, &visit, shared](const released_name& n, auto& parameter) {
    visit(within(prefix, n, shared), parameter);
  };
}

// A parameter of a layer and its name in files.
struct released_parameter {
  released_name name;
  parameter_reference parameter;
};

// A visitor that lists what it visits.
class parameter_list {
 public:
  void operator()(released_name name, parameter_reference parameter);
  template <class Name>
    requires(!std::convertible_to<const Name&, released_name>)
  void operator()(const Name&, parameter_reference) {
    static_assert(
        never<Name>,
        "released: a weight has a fmoe::released_name, which tells the labels of its axes, "
        "too: docs/adding_a_layer.md shows some");
  }
  std::vector<released_parameter> take() { return std::move(parameters_); }

 private:
  std::vector<released_parameter> parameters_;
};

// A layer that files can hold.
template <class Layer>
concept has_released_names =
    requires(Layer& layer, parameter_list& visit) { Layer::released(layer, visit); };

// A layer whose parameters are listed and not written.
template <class Layer>
Layer& only_listed(const Layer& layer) {
  return const_cast<Layer&>(layer);
}

// Returns the parameters of a layer, which must outlive them, in the order in which it lists them.
template <has_released_names Layer>
std::vector<released_parameter> released_parameters(Layer& layer) {
  parameter_list list;
  Layer::released(layer, list);
  return list.take();
}

}  // namespace fmoe::detail

namespace fmoe {

// Refuses to print a layer.
template <detail::has_released_names Layer>
std::ostream& operator<<(detail::refused_stream to, const Layer&) {
  static_assert(
      detail::never<Layer>,
      "a layer has no elements to print; its parameters and fmoe::evaluate(layer(x)) have");
  return to.out;
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/arrays/released-inl.hpp>
#endif
