// SPDX-License-Identifier: MIT
// How a layer's parameters are called in released weights: data that a layer's header holds and io reads.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>

#include <fmoe/tensor.hpp>

namespace fmoe {

enum class presence : std::uint8_t { required, optional };

// One tensor of a file. Labels name its axes in the file and, where the order differs, in the layer; equal labels have
// equal extents in all tensors of a layer; "d(nl)" is an axis of n times l. A tensor with `unless` counts, and is required,
// only where the file has no tensor of that name.
template <class Access>
struct released_name {
  std::string name;
  Access member;  // std::invoke(member, layer) is the parameter
  presence need;
  std::string_view file_labels, layer_labels = file_labels;
  std::string_view unless = {};
};

template <class Access>
released_name(std::string, Access, presence, std::string_view) -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string_view, std::string_view) -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string_view, std::string_view, std::string_view) -> released_name<Access>;

// What a file with the tensor `with` and without those of `without` holds, as its metadata "kind" calls it: `name`, or
// `also`. A layer lists its kinds; the first one that the names in the file fit counts, and a file that fits none is not
// the layer's.
struct released_kind {
  std::string_view name, also = {}, with = {};
  std::array<std::string_view, 2> without = {};
};

}  // namespace fmoe
