// SPDX-License-Identifier: MIT
// How layers are found by the names and shapes of tensors.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/scaled_arrays.hpp>

namespace fmoe::io {

FMOE_INLINE layer_arrays outlines(const checkpoint& weights, const released_layer& layer,
                                  const std::string& prefix) {
  layer_arrays result{weights.file(), {}, {}, [&weights] { return weights.names(); }};
  const auto add = [&](std::string_view n) {
    const std::string name = prefix + std::string(n);
    if (n.empty() || !weights.contains(name)) return;
    const array a = weights.outline_of(name);
    result.arrays.emplace(name, a.shape().size() < 2 ? weights.at(name) : a);
  };
  for (const released_parameter& p : layer.parameters) {
    for (const std::string& part : parts_of_weight(p.name.name)) add(part);
    add(name_of_scales(p.name.name));
  }
  for (const released_kind& k : layer.kinds)  // which look at names that are not this layer's
    std::ranges::for_each(k.without, add);
  if (is_dictionary(layer)) std::ranges::for_each(dictionary_names, add, &dictionary_name::name);
  return result;
}

FMOE_INLINE bool comes_before(std::string_view a, std::string_view b) {
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

// Returns the texts before the released names among `names`, which begin a name or follow a dot.
inline std::set<std::string> prefixes_in(const std::vector<std::string>& names,
                                         const released_layer& layer) {
  std::set<std::string, std::less<>> known;
  for (const released_parameter& p : layer.parameters) known.insert(p.name.name);
  if (is_dictionary(layer))
    for (const dictionary_name& n : dictionary_names)
      if (!n.of.empty()) known.insert(std::string(n.name));
  std::set<std::string> prefixes;
  for (const std::string& name : names)
    for (extent at = 0, dot = 0; dot != name.npos; at = dot + 1) {  // after each dot
      if (known.contains(std::string_view(name).substr(at))) prefixes.insert(name.substr(0, at));
      dot = name.find('.', at);
    }
  return prefixes;
}

// True if the layer needs a tensor that is not there.
inline bool lacks(const released_layer& layer, const has_tensor& contains,
                  const released_parameter& p) {
  const released_name& n = p.name;
  const auto stands_for_it = [&](const dictionary_name& d) {
    return d.of == n.name && contains(d.name);
  };
  return n.need == presence::required && !contains(n.name) &&
         (n.unless.empty() || !contains(n.unless)) &&
         !(is_dictionary(layer) && std::ranges::any_of(dictionary_names, stands_for_it));
}

// True if these tensors hold all that the layer needs, and make one of its kinds if it has kinds.
inline bool is_whole(const released_layer& layer, const has_tensor& contains) {
  const auto is_lacking = [&](const released_parameter& p) { return lacks(layer, contains, p); };
  const bool has_kind = layer.kinds.empty() || kind_of(layer.kinds, contains) != nullptr;
  return has_kind && std::ranges::none_of(layer.parameters, is_lacking);
}

// Returns what load would throw for such a layer, or nothing if the tensors make it.
inline std::optional<error> fault_of(const checkpoint& from, const std::string& prefix,
                                     with_new_layer of_type) {
  load_options options;
  options.prefix = prefix;
  options.narrow = narrow;
  try {
    of_type([&](const released_layer& layer) {
      fill_part(layer, outlines(from, layer, prefix), options);
    });
  } catch (const error& e) {
    return e;
  }
  return {};
}

// True if the shapes and types of the tensors make such a layer.
inline bool fits(const checkpoint& from, const std::string& prefix, with_new_layer of_type) {
  const auto fault = fault_of(from, prefix, of_type);
  if (fault && fault->code != errc::shape && fault->code != errc::dtype) throw *fault;
  return !fault;
}

// Tells whether the checkpoint has a tensor behind this prefix. Both must outlive the function.
inline has_tensor behind(const checkpoint& from, const std::string& prefix) {
  return [&](std::string_view name) { return from.contains(prefix + std::string(name)); };
}

// Returns all layers of one type, as if no other type were requested.
inline std::vector<found_layer> layers_of(const checkpoint& from, extent type,
                                          const std::vector<std::string>& names,
                                          with_new_layer of_type) {
  std::vector<found_layer> found;
  of_type([&](const released_layer& layer) {
    for (const std::string& prefix : prefixes_in(names, layer)) {
      const has_tensor contains = behind(from, prefix);
      if (!is_whole(layer, contains) || !fits(from, prefix, of_type)) continue;
      found_layer f{prefix, type, {}};
      for (const released_parameter& p : layer.parameters)
        if (contains(p.name.name)) f.names.push_back(prefix + p.name.name);
      found.push_back(std::move(f));
    }
  });
  return found;
}

FMOE_INLINE std::vector<found_layer> layers_in(const checkpoint& from,
                                               std::initializer_list<with_new_layer> types) {
  std::vector<found_layer> found, result;
  const std::vector<std::string> names = from.names();
  extent type = 0;
  for (const with_new_layer of_type : types)
    std::ranges::move(layers_of(from, type++, names, of_type), std::back_inserter(found));
  std::ranges::stable_sort(found, std::greater(),
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

FMOE_INLINE std::optional<near_layer> nearest_layer(const checkpoint& from,
                                                    std::initializer_list<with_new_layer> types) {
  std::optional<near_layer> nearest;
  std::ptrdiff_t most = 0;  // names that are there, less those that are needed and missing
  const std::vector<std::string> names = from.names();
  extent type = 0;
  const auto look_for = [&](with_new_layer of_type, const released_layer& layer) {
    for (const std::string& prefix : prefixes_in(names, layer)) {
      const has_tensor contains = behind(from, prefix);
      const auto is_there = [&](const released_parameter& p) { return contains(p.name.name); };
      const auto is_lacking = [&](const released_parameter& p) {
        return lacks(layer, contains, p);
      };
      const auto there = std::ranges::count_if(layer.parameters, is_there) -
                         std::ranges::count_if(layer.parameters, is_lacking);
      if (nearest && there <= most) continue;
      if (const auto fault = fault_of(from, prefix, of_type)) {
        nearest = near_layer{prefix, type, fault->what()};
        most = there;
      }
    }
  };
  for (const with_new_layer of_type : types) {
    of_type([&](const released_layer& layer) { look_for(of_type, layer); });
    ++type;
  }
  return nearest;
}

}  // namespace fmoe::io
