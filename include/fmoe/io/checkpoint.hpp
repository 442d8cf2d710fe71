// SPDX-License-Identifier: MIT
// A whole released model: one safetensors file, or shards beside an index. Only the tensors that
// are asked for are read from a shard.
#pragma once

#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/load.hpp>
#include <fmoe/io/shard_index.hpp>

namespace fmoe::io {

class shard;
class shards;

// The arrays of a model in one file or several; each is read when it is asked for. Any number of
// threads may read from one checkpoint. Its copies share the files that it has opened.
class checkpoint {
 public:
  // Opens a folder with model.safetensors.index.json or model.safetensors, or such an index, or a
  // safetensors file. A shard is opened when one of its tensors is read. Throws io::error.
  static checkpoint open(const std::filesystem::path& path);

  const std::filesystem::path& file() const { return file_; }  // the index, or the one file
  bool contains(std::string_view name) const { return shard_of_.contains(name); }
  std::vector<std::string> names() const;

  // Returns the metadata of the one file. For shards it is empty: none of them describes the whole
  // model.
  strings_by_name metadata() const;

  // Throws missing_tensor for a tensor that is in no shard or that its shard lacks, and io for a
  // shard that does not exist.
  array at(const std::string& name) const;

  // Returns the type and the shape of a tensor. Only the header of its shard is read. Throws as
  // at() does.
  array outline_of(const std::string& name) const;

 private:
  const shard& shard_with(const std::string& name) const;

  std::filesystem::path file_;
  shard_names shard_of_;
  std::shared_ptr<const shard> whole_;  // null for an index
  std::shared_ptr<shards> shards_;      // null for one file
};

// True if a parameter or a kind of the layer has this name.
template <class Layer>
bool is_released_name(std::string_view name) {
  Layer layer;
  bool known = false;
  auto compare = [&](const released_name& t, auto&) { known = known || t.name == name; };
  Layer::released(layer, compare);
  if constexpr (requires { Layer::released_kinds; })
    for (const released_kind& k : Layer::released_kinds)
      known = known || k.with == name || std::ranges::count(k.without, name) != 0;
  return known;
}

// Returns the numbers L for which the checkpoint has a tensor of such a layer, named `layers` +
// "L." + a released name.
template <class Layer>
std::vector<extent> layer_numbers(const checkpoint& from,
                                  std::string_view layers = "model.layers.") {
  std::vector<extent> numbers;
  for (const std::string& name : from.names()) {
    if (!name.starts_with(layers)) continue;
    const char* const first = name.data() + layers.size();
    extent number = 0;
    const auto [end, fault] = std::from_chars(first, name.data() + name.size(), number);
    const bool has_number = fault == std::errc() && *end == '.' &&
                            std::to_string(number) == std::string_view(first, end);
    if (has_number && is_released_name<Layer>(end + 1)) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace fmoe::io

namespace fmoe {

// Loads one layer by its prefix, such as "model.layers.3.". Throws as load of a file and
// checkpoint::at do.
template <class Layer>
Layer load(const io::checkpoint& weights, const load_options& options = {}) {
  io::layer_arrays from{weights.file(), {}, {}};
  for (const std::string& name : weights.names()) {
    if (!name.starts_with(options.prefix)) continue;
    const auto rest = std::string_view(name).substr(options.prefix.size());
    if (options.extra != nullptr || io::is_released_name<Layer>(rest))
      from.arrays.emplace(name, weights.at(name));
  }
  return io::layer_from<Layer>(from, options);
}

// Loads every layer of this kind in a model, by number. The prefix in the options stands before the
// number; by default it is "model.layers.".
template <class Layer>
std::map<std::size_t, Layer> load_layers(const io::checkpoint& weights, load_options options = {}) {
  if (options.prefix.empty()) options.prefix = "model.layers.";
  const std::string layers = options.prefix;
  std::map<std::size_t, Layer> result;
  for (const std::size_t number : io::layer_numbers<Layer>(weights, layers)) {
    options.prefix = layers + std::to_string(number) + '.';
    result.emplace(number, load<Layer>(weights, options));
  }
  return result;
}

}  // namespace fmoe

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/checkpoint-inl.hpp>
#endif
