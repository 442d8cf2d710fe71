// SPDX-License-Identifier: MIT
// Leaf: an array of the user, a parameter, or an argument of a compiled layer.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>

#include <fmoe/arrays/quantized_layout.hpp>
#include <fmoe/arrays/tensor.hpp>
#include <fmoe/base/dtype.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/ids.hpp>

namespace fmoe::ir {

struct leaf_node {
  std::shared_ptr<storage> data;  // null for an argument
  dtype type = dtype::float32;
  vector<extent> shape;
  bool parameter = false;
  // The number of an argument, bound at the call of a compiled layer; -1 for other leaves.
  int argument = -1;
  // Copied from an array of the user, once for every place that names it; equal copies are one
  // leaf.
  bool copied = false;
  block_axis axis{};  // of weights of 8 bits
  // The version of the elements when the expression was made.
  std::uint64_t version = 0;
  // Others may write the elements while an executable has them: it copies what it goes on reading.
  bool may_change = false;
  bool operator==(const leaf_node& o) const {
    return std::tie(type, shape, parameter, argument, copied, axis) ==
               std::tie(o.type, o.shape, o.parameter, o.argument, o.copied, o.axis) &&
           (same_elements(o) || (copied && same_bytes(o)));
  }
  bool same_elements(const leaf_node& o) const {
    if (data == nullptr || o.data == nullptr) return data == o.data;
    return data->same_elements(*o.data);
  }
  stored_numbers numbers() const {
    return {type, data == nullptr ? nullptr : data->data(), element_count(shape), axis};
  }
  // The same where only types and sizes count; it reads no elements.
  stored_numbers outline() const { return {type, nullptr, element_count(shape), axis}; }
  bool same_bytes(const leaf_node& o) const {
    const extent bytes = outline().bytes();
    return bytes == 0 || std::memcmp(data->data(), o.data->data(), bytes) == 0;
  }
  // That it is a parameter is no part, because graph::find_inputs changes that.
  void add_to_hash(const auto& add) const {
    add(static_cast<extent>(argument));
    for (const extent e : shape) add(e);
    if (data != nullptr && !copied) add(reinterpret_cast<std::uintptr_t>(data->address()));
  }

  static void each_operand(auto&, const auto&) {}
  const char* name() const { return parameter ? "parameter" : "input"; }

  vector<axis_id> axes(auto& graph) const {
    vector<axis_id> axes;
    for (const extent e : shape) axes.push_back(graph.new_axis(e));
    return axes;
  }
  auto token_axis(auto& tokens) const { return tokens.of_leaf(*this); }
  void pull(auto&, node_id, node_id) const {}
  void list_ways(auto& ways) const { ways.add_leaf(argument >= 0); }
};

}  // namespace fmoe::ir
