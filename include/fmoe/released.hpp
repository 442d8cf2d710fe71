// SPDX-License-Identifier: MIT
// How a layer's parameters are called in released weights: data that a layer's header holds and io reads.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>

#include <fmoe/tensor.hpp>

namespace fmoe {

enum class presence : std::uint8_t { required, optional };

// One tensor of a file. Labels name its axes in the file and, where the order differs, in the layer; equal labels have
// equal extents in all tensors of a layer; "d(nl)" is an axis of n times l. A tensor with `unless` counts, and is required,
// only where the file has no tensor of that name.
template <class Access>
struct released_name {
  std::string name;
  Access member;  // std::invoke(member, layer) is the parameter: a member, or a function of the layer
  presence need;
  std::string file_labels, layer_labels = file_labels;
  std::string_view unless = {};
};

template <class Access>
released_name(std::string, Access, presence, std::string) -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string, std::string) -> released_name<Access>;
template <class Access>
released_name(std::string, Access, presence, std::string, std::string, std::string_view) -> released_name<Access>;

// The names of a layer's part, its member `part`, after `prefix`. Small labels other than the `shared` ones become capitals:
// their extents are the part's own.
template <class Part, class... Access>
auto released_in(Part part, const std::string& prefix, const std::tuple<released_name<Access>...>& names,
                 std::string_view shared = "abcdefghijklmnopqrstuvwxyz") {
  const auto renamed = [&](std::string labels) {
    for (char& c : labels)
      if (c >= 'a' && c <= 'z' && shared.find(c) == shared.npos) c = static_cast<char>(c - 'a' + 'A');
    return labels;
  };
  const auto in_layer = [&](const auto& n) {
    const auto member = [part, inner = n.member](auto& layer) -> auto& { return std::invoke(inner, std::invoke(part, layer)); };
    return released_name{prefix + n.name, member, n.need, renamed(n.file_labels), renamed(n.layer_labels), n.unless};
  };
  return std::apply([&](const auto&... n) { return std::tuple{in_layer(n)...}; }, names);
}

// What a file with the tensor `with` and without those of `without` holds, as its metadata "kind" calls it: `name`, or
// `also`. A layer lists its kinds; the first one that the names in the file fit counts, and a file that fits none is not
// the layer's.
struct released_kind {
  std::string_view name, also = {}, with = {};
  std::array<std::string_view, 2> without = {};
};

}  // namespace fmoe
