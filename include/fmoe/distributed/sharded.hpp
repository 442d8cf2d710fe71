// SPDX-License-Identifier: MIT
// A layer whose weights are cut along one of their labels: each rank holds some neighbours of that
// axis, in one or several parts.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/distributed/communicator.hpp>
#include <fmoe/distributed/network_costs.hpp>
#include <fmoe/distributed/tensor_parts.hpp>
#include <fmoe/io/load.hpp>
#include <fmoe/version.hpp>

namespace fmoe {

// Says how a layer is cut.
struct shard_options {
  // The number of parts of all ranks, a multiple of the number of ranks; 0 means one a rank. The
  // bits of a result depend on it. With a power of two they are the same for 1, 2, 4, ... ranks.
  std::size_t parts = 0;
  // Names of parameters that every rank holds whole although they have the label. With a router
  // that is whole, each rank selects for its own tokens, and these travel to what they selected.
  std::vector<std::string> whole = {};
  // What the planner takes for granted about the ranks. The bits of a result may depend on it.
  network_costs network = {};
  // The tokens of a call of compile's go through the plan in so many spans, and one computes while
  // another exchanges. 0 means two where `network` predicts that a call then takes less than 0.9 of
  // the time, and else one.
  std::size_t spans = 0;
};

}  // namespace fmoe

namespace fmoe::detail {

// How an axis is cut into parts, and which of them are this rank's.
struct axis_cut {
  char label = 0;
  extent length = 0, parts = 1, ranks = 1, rank = 0;
  std::vector<std::string> whole{};  // parameters that are not cut

  extent parts_a_rank() const { return parts / ranks; }
  extent begin(extent part) const { return begin_of_part(length, parts, part); }
  extent count(extent part) const { return begin(part + 1) - begin(part); }
  // The part of all parts that this rank has in this place.
  extent own(extent i) const { return rank * parts_a_rank() + i; }
  // What rank r has of the axis.
  extent begin_of(extent r) const { return begin(r * parts_a_rank()); }
  extent count_of(extent r) const { return begin_of(r + 1) - begin_of(r); }
};

// A parameter that is cut: the storage without elements that stands for it in the whole layer, and
// the parts of this rank.
struct cut_parameter {
  any_tensor whole;
  extent axis;
  extent block;  // neighbours along the axis for each entry of the label
  std::vector<any_tensor> own;
};

// Returns the letter of the axis along which a tensor is cut, if a label is: the label's own, or
// that of an axis which has a block for each of its entries. Returns 0 if there is none.
inline char cut_letter(char label, const released_name& n) {
  if (has(n.layer_labels, label)) return label;
  return n.blocks.size() == 2 && n.blocks[1] == label ? n.blocks[0] : '\0';
}

inline char cut_letter(const axis_cut& cut, const std::vector<released_parameter>& all,
                       const released_parameter& p) {
  const bool stays_whole = std::ranges::any_of(all, [&](const released_parameter& other) {
    return other.parameter.is(p.parameter) && std::ranges::count(cut.whole, other.name.name) > 0;
  });
  return stays_whole ? '\0' : cut_letter(cut.label, p.name);
}

// Returns which axis of a leaf is the label's: the leaf may view the parameter in another shape,
// where an axis of blocks is several axes.
inline std::optional<extent> axis_of_label(std::span<const extent> leaf, const cut_parameter& c) {
  const extent length = c.whole.shape[c.axis] / c.block,
               outer = element_count(std::span(c.whole.shape).first(c.axis));
  for (extent k = 0, before = 1; k < leaf.size(); before *= leaf[k++])
    if (before == outer && leaf[k] == length) return k;
  return {};
}

// Throws value_error for a cut within a block of 8-bit weights, which have one scale.
inline void check_blocks(const axis_cut& cut, const std::string& name, const any_tensor& t,
                         extent axis) {
  if (!is_quantized_type(t.type) || axis_of_blocks(t) != axis) return;
  const extent block = quantized_layout(t.type, element_count(t.shape), t.axis).block,
               each = t.shape[axis] / cut.length;
  for (extent i = 0; i < cut.parts; ++i) {
    const extent first = each * cut.begin(i), last = each * cut.begin(i + 1) - 1;
    expects<value_error>(first % block == 0 || first / block == last / block, "[shard] '",
                         cut.label, "' of ", cut.length, " in ", cut.parts,
                         " parts cuts a block of ", block, " weights of ", name,
                         ", which have one scale");
  }
}

// Returns the cut of a label of a layer into parts. Throws value_error for a label that no
// parameter has, and for parts that do not fit the ranks.
inline axis_cut cut_of(const std::vector<released_parameter>& parameters, char label,
                       const communicator& ranks, const shard_options& options) {
  axis_cut cut{label,
               0,
               options.parts == 0 ? ranks.size() : options.parts,
               ranks.size(),
               ranks.rank(),
               options.whole};
  expects<value_error>(cut.parts % cut.ranks == 0, "[shard] ", cut.parts, " parts on ", cut.ranks,
                       " ranks: the number of parts is a multiple of that of the ranks");
  for (const std::string& name : cut.whole) {
    const auto is_it = [&](const released_parameter& p) { return p.name.name == name; };
    expects<value_error>(std::ranges::any_of(parameters, is_it), "[shard] no parameter is called ",
                         name);
  }
  std::string labels;
  bool is_known = false;
  for (const released_parameter& p : parameters) {
    const any_tensor value = p.parameter.value();
    if (value.empty()) continue;
    for (const char c : p.name.layer_labels)
      if (!has(labels, c)) labels += c;
    const extent axis = position_of(label, p.name.layer_labels);
    if (axis == p.name.layer_labels.size()) continue;
    is_known |= p.name.trained;  // statistics alone are no reason for a cut
    cut.length = value.shape[axis];
  }
  expects<value_error>(is_known, "[shard] no parameter has the label '", label,
                       "': the layer's are ", labels);
  for (const released_parameter& p : parameters) {
    const any_tensor value = p.parameter.value();
    const char letter = cut_letter(cut, parameters, p);
    if (value.empty() || letter == 0) continue;
    const extent axis = position_of(letter, p.name.layer_labels);
    expects<shape_error>(cut.length != 0 && value.shape[axis] % cut.length == 0, "[shard] the ",
                         value.shape[axis], " of '", letter, "' in ", p.name.name,
                         " are no blocks for the ", cut.length, " of '", label, "'");
  }
  expects<value_error>(cut.parts <= cut.length, "[shard] '", label, "' is ", cut.length,
                       " and has no ", cut.parts, " parts");
  for (const released_parameter& p : parameters) {
    const any_tensor value = p.parameter.value();
    const char letter = cut_letter(cut, parameters, p);
    if (!value.empty() && letter != 0)
      check_blocks(cut, p.name.name, value, position_of(letter, p.name.layer_labels));
  }
  return cut;
}

// What all ranks must have in common, a line each.
inline std::string description_of(const io::released_layer& layer, const axis_cut& cut) {
  std::string text = "fmoe " + std::to_string(version::major) + '.' +
                     std::to_string(version::minor) + '.' + std::to_string(version::patch);
  text += std::string("\n'") + cut.label + "' of " + std::to_string(cut.length) + " in " +
          std::to_string(cut.parts) + " parts\n";
  for (const std::string& name : cut.whole) text += "whole: " + name + '\n';
  const auto contains = [&](std::string_view name) {
    for (const released_parameter& p : layer.parameters)
      if (p.name.name == name && !p.parameter.value().empty()) return true;
    return false;
  };
  for (const released_parameter& p : layer.parameters) {
    const any_tensor value = p.parameter.value();
    if (value.empty()) continue;
    text += p.name.name + ": " + fmoe::name_of(value.type);
    for (const extent n : value.shape) text += ' ' + std::to_string(n);
    if (is_quantized_type(value.type))
      text += std::string(" in blocks along ") + p.name.layer_labels[axis_of_blocks(value)];
    text += '\n';
  }
  for (const auto& [key, value] : io::metadata_of(layer, contains, {}))
    text += key + ": " + value + '\n';
  return text;
}

}  // namespace fmoe::detail

namespace fmoe {

// A layer on the ranks of a job, which must outlive it: compile takes it. load_shard and shard make
// it.
template <class Layer>
struct sharded {
  communicator* ranks;
  // Parameters that are cut have a shape and no elements, but for statistics: a layer may look at
  // these while it is planned.
  Layer whole;
  detail::axis_cut cut;
  std::vector<detail::cut_parameter> parameters;  // those that are cut
  network_costs network;
  std::size_t spans = 0;       // shard_options::spans
  std::size_t bytes_read = 0;  // of the file

  // Returns the layer of this rank: its parts of the parameters that are cut, and the others. It
  // shares the elements: what an optimizer writes there is written in this layer over ranks. Throws
  // value_error if the rank has several parts.
  Layer own_part() const;
};

template <class Layer>
Layer sharded<Layer>::own_part() const {
  detail::expects<value_error>(cut.parts_a_rank() == 1, "[shard] a rank has ", cut.parts_a_rank(),
                               " parts: a layer of its own has one");
  Layer own = whole;
  const auto held = detail::released_parameters(detail::only_listed(whole)),
             made = detail::released_parameters(own);
  for (std::size_t k = 0; k < held.size(); ++k) {
    detail::any_tensor value = held[k].parameter.value();
    if (value.empty()) continue;
    for (const detail::cut_parameter& c : parameters)
      if (value.elements->same_elements(*c.whole.elements)) value = c.own[0];
    made[k].parameter.refer_to(value);
  }
  return own;
}

// Cuts a layer that each rank holds whole: ranks then keep only their parts of the parameters that
// have the label, which `released` says. Throws value_error for a label that none has, and
// communication_error if ranks disagree on the layer or on the cut.
//
//   run_on_threads(4, [&](communicator& ranks) {
//     auto forward = compile(shard(layer, ranks, 'n'), 128);
//     tensor<float, 2> y({x.shape()[0], forward.output_shape()[0]});
//     forward(x, y);  // rows of this rank
//   });
template <detail::has_released_names Layer>
sharded<Layer> shard(const Layer& layer, communicator& ranks, char label,
                     const shard_options& options = {}) {
  return ranks.guarded([&] {
    sharded<Layer> result{&ranks, layer, {}, {}, options.network, options.spans};
    const io::released_layer list(result.whole);
    result.cut = detail::cut_of(list.parameters, label, ranks, options);
    ranks.agree(detail::description_of(list, result.cut));
    for (const detail::released_parameter& p : list.parameters) {
      const char letter = detail::cut_letter(result.cut, list.parameters, p);
      const detail::any_tensor value = p.parameter.value();
      if (value.empty() || letter == 0) continue;
      const std::size_t axis = detail::position_of(letter, p.name.layer_labels),
                        block = value.shape[axis] / result.cut.length;
      const auto is_it = [&](const detail::cut_parameter& known) {
        return known.whole.elements->same_elements(*value.elements);
      };
      if (std::ranges::any_of(result.parameters, is_it)) continue;  // under another of its names
      detail::cut_parameter made{value, axis, block, {}};
      for (std::size_t i = 0; i < result.cut.parts_a_rank(); ++i)
        made.own.push_back(detail::part_of(value, axis, block * result.cut.begin(result.cut.own(i)),
                                           block * result.cut.count(result.cut.own(i))));
      if (p.name.trained) made.whole.elements = std::make_shared<storage>(0);
      p.parameter.assign(made.whole);
      result.parameters.push_back(std::move(made));
    }
    return result;
  });
}

}  // namespace fmoe
