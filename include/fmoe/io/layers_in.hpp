// SPDX-License-Identifier: MIT
// Finds the layers that a checkpoint holds, by the names and shapes of its tensors. Makes layers in
// outline, which are enough for plans and costs, without reading their weights.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/checkpoint.hpp>

namespace fmoe {

namespace io {

// Returns the arrays that layer_from needs for a layer in outline: the shapes of its matrices, and
// its whole vectors, because layers look at variances.
template <class Layer>
layer_arrays outlines(const checkpoint& weights, const std::string& prefix,
                      strings_by_name metadata) {
  layer_arrays result{weights.file(), std::move(metadata), {}};
  const auto add = [&](std::string_view n) {
    const std::string name = prefix + std::string(n);
    if (n.empty() || !weights.contains(name)) return;
    const array a = weights.outline_of(name);
    result.arrays.emplace(name, a.shape().size() < 2 ? weights.at(name) : a);
  };
  Layer layer;
  auto add_released = [&](const released_tensor& n, auto&) { add(n.name); };
  each_released(layer, add_released);
  // Kinds also depend on names that are not this layer's.
  if constexpr (requires { Layer::released_kinds; })
    for (const released_kind& k : Layer::released_kinds) std::ranges::for_each(k.without, add);
  return result;
}

}  // namespace io

// Makes a layer as load does, but with shapes in place of matrices, for cost and explain. It uses
// the metadata of a single file. Throws as load of a file does.
template <class Layer>
Layer outline(const io::checkpoint& weights, const load_options& options = {}) {
  return io::layer_from<Layer>(io::outlines<Layer>(weights, options.prefix, weights.metadata()),
                               options);
}

namespace io {

struct found_layer {
  std::string prefix;              // before its names, as load_options take it
  extent type = 0;                 // its position among the requested types
  std::vector<std::string> names;  // names of its tensors, with the prefix
};

// Orders numbers in names by their value: "layers.2." comes before "layers.10.".
inline bool comes_before(std::string_view a, std::string_view b) {
  const auto digits = [](std::string_view s) {
    return std::min(s.find_first_not_of("0123456789"), s.size());
  };
  while (!a.empty() && !b.empty()) {
    const extent n = digits(a), m = digits(b);
    if (n != 0 && m != 0) {
      if (n != m) return n < m;
      if (const int order = a.substr(0, n).compare(b.substr(0, m)); order != 0) return order < 0;
    } else if (a[0] != b[0]) {
      return a[0] < b[0];
    }
    a.remove_prefix(std::max(n, extent{1}));
    b.remove_prefix(std::max(m, extent{1}));
  }
  return a.size() < b.size();
}

// True if kind_of finds a kind, or the layer has no kinds.
template <class Layer>
bool is_of_a_kind(auto contains) {
  try {
    kind_of<Layer>(contains, {});
  } catch (const error&) {
    return false;
  }
  return true;
}

template <class Layer>
void find_layers(const checkpoint& from, const std::vector<std::string>& names, extent type,
                 std::vector<found_layer>& found) {
  std::vector<std::string> released;
  Layer layer;
  auto add_name = [&](const released_tensor& n, auto&) { released.push_back(n.name); };
  each_released(layer, add_name);
  const std::set<std::string, std::less<>> known(released.begin(), released.end());

  std::set<std::string> prefixes;
  for (const std::string& name : names)
    for (extent at = 0, dot = 0; dot != name.npos; at = dot + 1) {  // after each dot
      if (known.contains(std::string_view(name).substr(at))) prefixes.insert(name.substr(0, at));
      dot = name.find('.', at);
    }

  for (const std::string& prefix : prefixes) {
    const auto contains = [&](std::string_view name) {
      return from.contains(prefix + std::string(name));
    };
    bool whole = true;
    auto look_for = [&](const released_tensor& n, auto&) {
      whole = whole && (n.need != presence::required || contains(n.name) ||
                        (!n.unless.empty() && contains(n.unless)));
    };
    each_released(layer, look_for);
    if (!whole || !is_of_a_kind<Layer>(contains)) continue;
    try {
      load_options options;
      options.prefix = prefix;
      options.narrow = narrow;
      layer_from<Layer>(outlines<Layer>(from, prefix, {}), options);
    } catch (const error& e) {
      if (e.code != errc::shape && e.code != errc::dtype) throw;
      continue;
    }
    found_layer f{prefix, type, {}};
    for (const std::string& n : released)
      if (contains(n)) f.names.push_back(prefix + n);
    found.push_back(std::move(f));
  }
}

// Returns the layers of these types that a checkpoint holds completely, by prefix. If the same
// tensors make several layers, as those of a block also make a layer, the layer with more tensors
// counts. It reads headers and vectors. Throws as checkpoint::at does, and conflict for vectors
// that no such layer can have.
template <class... Layers>
std::vector<found_layer> layers_in(const checkpoint& from) {
  std::vector<found_layer> found, result;
  [[maybe_unused]] extent type = 0;  // unused if no type is requested
  [[maybe_unused]] const auto names = from.names();
  (find_layers<Layers>(from, names, type++, found), ...);
  std::ranges::stable_sort(found, std::ranges::greater(),
                           [](const found_layer& f) { return f.names.size(); });
  std::set<std::string> taken;
  for (found_layer& f : found) {
    if (std::ranges::any_of(f.names, [&](const std::string& n) { return taken.contains(n); }))
      continue;
    taken.insert(f.names.begin(), f.names.end());
    result.push_back(std::move(f));
  }
  std::ranges::stable_sort(result, comes_before, &found_layer::prefix);
  return result;
}

}  // namespace io
}  // namespace fmoe
