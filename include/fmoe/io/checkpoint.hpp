// SPDX-License-Identifier: MIT
// A whole released model: one safetensors file or shards beside an index, or a GGUF file or the
// parts that ggml has split it into. Only the tensors that are asked for are read from a file.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/io/load.hpp>
#include <fmoe/io/shard_index.hpp>

namespace fmoe::io {

class shard;
class shards;

// What the metadata of several files say together.
struct joint_metadata {
  strings_by_name agreed;          // what one of the files says, or several alike
  std::set<std::string> disputed;  // keys for which two files have different texts
};

// The arrays of a model in one file or several; each is read when it is asked for. Any number of
// threads may read from one checkpoint. Its copies share the files that it has opened.
class checkpoint {
 public:
  // Opens a folder with model.safetensors or else model.safetensors.index.json or else one file of
  // tensors, or such an index, or a safetensors or GGUF file, which their first bytes tell. Of a
  // GGUF model in parts, any part opens all. A shard is opened when one of its tensors is read.
  // Throws io::error.
  static checkpoint open(const std::filesystem::path& path);

  const std::filesystem::path& file() const { return file_; }  // the index, or the one file
  bool contains(std::string_view name) const { return shard_of_.contains(name); }
  std::vector<std::string> names() const;

  // Returns the metadata of the one file, or what those of all shards say together, without the
  // keys that they dispute. Every shard is opened. Throws as at() does.
  strings_by_name metadata() const { return metadata_beside(names()).agreed; }

  // The same for the files with these tensors alone. The others are not opened.
  joint_metadata metadata_beside(const std::vector<std::string>& names) const;

  // Throws missing_tensor for a tensor that is in no shard or that its shard lacks, and io for a
  // shard that does not exist.
  array at(const std::string& name) const;
  // The same, with bytes that stay in the file, which is mapped and must be left as it is while the
  // array lives.
  array mapped_at(const std::string& name) const;

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

// Returns the numbers L for which the checkpoint has a tensor of such a layer, named `layers` +
// "L." + the name of a parameter or of a tensor that tells its kind.
std::vector<extent> layer_numbers(const checkpoint& from, const released_layer& layer,
                                  std::string_view layers);

template <class Layer>
std::vector<extent> layer_numbers(const checkpoint& from,
                                  std::string_view layers = "model.layers.") {
  Layer layer;
  return layer_numbers(from, released_layer(layer), layers);
}

// Reads the arrays that `fill` needs for such a layer, with the metadata beside them.
layer_arrays arrays_for(const released_layer& layer, const checkpoint& from,
                        const load_options& options);

// Adds what the files with these arrays say in their metadata.
void add_metadata(layer_arrays& to, const checkpoint& from);

}  // namespace fmoe::io

namespace fmoe {

// Loads one layer by its prefix, such as "model.layers.3.". Its settings come from the metadata of
// the files that hold its tensors. Throws as load of a file and checkpoint::at do, and conflict if
// two of these files name different values of a setting.
template <class Layer>
Layer load(const io::checkpoint& weights, const load_options& options = {}) {
  Layer layer;
  const io::released_layer released(layer);
  io::fill(released, io::arrays_for(released, weights, options), options);
  return layer;
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
