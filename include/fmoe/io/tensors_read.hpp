// SPDX-License-Identifier: MIT
// No tensor of a layer is dropped without a word: one that nothing reads is refused, or listed for
// the caller.
#pragma once

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/arrays/released.hpp>
#include <fmoe/io/error.hpp>
#include <fmoe/io/hints.hpp>

namespace fmoe::io {

// The names of the tensors that a reader has read, or knows to be without use.
class tensors_read {
 public:
  void insert(std::string name) { names_.insert(std::move(name)); }
  void insert(const tensors_read& others) {
    names_.insert(others.names_.begin(), others.names_.end());
  }

  // Throws extra_tensor if one of these tensors was not read. If there is a list for such names,
  // they are added to it instead.
  void expect_all(std::vector<std::string> of_layer, std::vector<std::string>* extra,
                  const std::filesystem::path& file) const {
    std::erase_if(of_layer, [&](const std::string& name) { return contains(name); });
    if (of_layer.empty()) return;
    if (extra != nullptr) {
      for (std::string& name : of_layer)
        if (std::ranges::count(*extra, name) == 0) extra->push_back(std::move(name));
      return;
    }
    std::string more;
    if (of_layer.size() > 1) more = ", nor " + in_quotes(of_layer[1]);
    if (of_layer.size() > 2) more += " and " + std::to_string(of_layer.size() - 2) + " more";
    throw error(errc::extra_tensor,
                "is not read by this layer" + more +
                    ": a list passed as `extra` takes such names, and they are left out",
                0, of_layer[0], file);
  }

 private:
  // Batch norms count batches beside their statistics.
  bool contains(const std::string& name) const {
    constexpr std::string_view count = "num_batches_tracked";
    return names_.contains(name) ||
           (name.ends_with(count) &&
            names_.contains(name.substr(0, name.size() - count.size()) + "running_mean"));
  }

  std::set<std::string> names_;
};

// The parts of a decoder layer that hold its mixture of experts. Attention, norms and other layers
// stand beside them.
inline constexpr std::string_view mixture_modules[] = {
    "block_sparse_moe.", "feed_forward.", "mixer.",     "mlp.", "moe.",
    "router.",           "share_expert.", "shared_mlp."};

// Returns the module that begins the name, or nothing.
inline std::string_view mixture_module_of(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      mixture_modules, [&](std::string_view module) { return name.starts_with(module); });
  return found == std::end(mixture_modules) ? std::string_view() : *found;
}

// True if the tensor of this name belongs to a layer of these parameters behind the prefix: all of
// what stands there, unless the layer's names begin with modules of a decoder layer, which are then
// all that is its own. Without a prefix the file is the layer's, but for other such modules,
// attention and norms.
inline bool is_of_layer(std::span<const detail::released_parameter> parameters,
                        std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return false;
  const std::string_view rest = name.substr(prefix.size()), module = mixture_module_of(rest);
  bool has_modules = true, is_own = false;
  for (const detail::released_parameter& p : parameters) {
    const std::string_view own = mixture_module_of(p.name.name);
    has_modules = has_modules && !own.empty();
    is_own = is_own || own == module;
  }
  if (!has_modules) return true;
  if (!module.empty()) return is_own;
  const std::string_view first = rest.substr(0, rest.find('.'));
  const bool is_beside = first.find("attn") != first.npos ||
                         first.find("attention") != first.npos || first.find("norm") != first.npos;
  return prefix.empty() && !is_beside;
}

}  // namespace fmoe::io
