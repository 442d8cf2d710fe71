// SPDX-License-Identifier: MIT
// The shards of a checkpoint, and which of its tensors belong to a layer.
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/dictionary.hpp>
#include <fmoe/io/hints.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/scaled_arrays.hpp>
#include <fmoe/io/shard.hpp>
#include <fmoe/io/shard_index-inl.hpp>

namespace fmoe::io {

// The shards beside an index. The thread that needs a shard first opens it, and others that need it
// wait until it is open.
class shards {
 public:
  shards(std::filesystem::path folder, const shard_names& shard_of) : folder_(std::move(folder)) {
    for (const auto& [tensor, file] : shard_of) places_.try_emplace(file);
  }

  // Throws io for a shard that does not exist, where the tensor should be.
  const shard& at(const std::string& file, const std::string& tensor) {
    place& p = places_.at(file);
    const std::lock_guard lock(p.opening);
    if (p.opened == nullptr) {
      const auto path = folder_ / path_named(file);
      if (type_of(path) == std::filesystem::file_type::not_found)
        throw error(errc::io, "should be in this shard, which is not there", 0, tensor, path);
      p.opened = open_shard(path);
    }
    return *p.opened;
  }

 private:
  struct place {
    std::mutex opening;
    std::unique_ptr<const shard> opened;
  };

  std::filesystem::path folder_;
  std::map<std::string, place> places_;  // by file; no place is added after the constructor
};

// Returns the one safetensors or GGUF file of a folder. Throws io if there are none or several.
inline std::filesystem::path only_file_in(const std::filesystem::path& folder) {
  std::vector<std::string> found;
  std::error_code fault;
  for (const auto& entry : std::filesystem::directory_iterator(folder, fault)) {
    const auto ending = entry.path().extension();
    if (ending == ".safetensors" || ending == ".gguf")
      found.push_back(path_text(entry.path().filename()));
  }
  if (found.size() == 1) return folder / path_named(found[0]);
  std::ranges::sort(found);
  throw error(errc::io,
              found.empty() ? "is not there; the folder has no file of tensors"
                            : "is not there; the folder has " + listed(found) +
                                  ", each to be opened by its path",
              0, {}, folder / "model.safetensors");
}

FMOE_INLINE checkpoint checkpoint::open(const std::filesystem::path& path) {
  using std::filesystem::file_type;
  checkpoint c;
  c.file_ = path;
  if (type_of(path) == file_type::directory) {
    // As transformers looks for them: it leaves the index of an earlier save beside one new file.
    const auto index = path / "model.safetensors.index.json";
    c.file_ = path / "model.safetensors";
    if (type_of(c.file_) == file_type::not_found && type_of(index) != file_type::not_found)
      c.file_ = index;
    else if (type_of(c.file_) == file_type::not_found) c.file_ = only_file_in(path);
  }
  if (c.file_.extension() == ".json") {
    c.shard_of_ = read_shard_index(c.file_);
    c.shards_ = std::make_shared<shards>(c.file_.parent_path(), c.shard_of_);
  } else {
    const std::string name = path_text(c.file_.filename());
    c.whole_ = open_shard(c.file_);
    for (std::string& tensor : c.whole_->names()) c.shard_of_.emplace(std::move(tensor), name);
  }
  return c;
}

FMOE_INLINE std::vector<std::string> checkpoint::names() const {
  std::vector<std::string> result;
  for (const auto& [name, file] : shard_of_) result.push_back(name);
  return result;
}

FMOE_INLINE joint_metadata
checkpoint::metadata_beside(const std::vector<std::string>& names) const {
  joint_metadata said;
  if (whole_ != nullptr) said.agreed = whole_->metadata();
  std::set<std::string_view> seen;
  for (const std::string& name : whole_ == nullptr ? names : std::vector<std::string>()) {
    if (!seen.insert(shard_of_.at(name)).second) continue;
    for (const auto& [key, text] : shard_with(name).metadata())
      if (said.agreed.try_emplace(key, text).first->second != text) said.disputed.insert(key);
  }
  for (const std::string& key : said.disputed) said.agreed.erase(key);
  return said;
}

FMOE_INLINE array checkpoint::at(const std::string& name) const {
  return shard_with(name).read(name);
}

FMOE_INLINE array checkpoint::mapped_at(const std::string& name) const {
  return shard_with(name).mapped(name);
}

FMOE_INLINE array checkpoint::outline_of(const std::string& name) const {
  return shard_with(name).outline(name);
}

FMOE_INLINE const shard& checkpoint::shard_with(const std::string& name) const {
  const auto where = shard_of_.find(name);
  if (where == shard_of_.end()) throw error(errc::missing_tensor, "is in no shard", 0, name, file_);
  return whole_ == nullptr ? shards_->at(where->second, name) : *whole_;
}

// True if a parameter or a kind of the layer has this name.
inline bool is_released_name(const released_layer& layer, std::string_view name) {
  const auto is_named = [&](const released_parameter& p) {
    const std::string& own = p.name.name;
    return own == name || name_of_scales(own) == name || is_part_of_weight(own, name);
  };
  const auto tells_kind = [&](const released_kind& k) {
    return k.with == name || std::ranges::count(k.without, name) != 0;
  };
  return std::ranges::any_of(layer.parameters, is_named) ||
         std::ranges::any_of(layer.kinds, tells_kind) ||
         (is_dictionary(layer) &&
          std::ranges::count(dictionary_names, name, &dictionary_name::name) != 0);
}

FMOE_INLINE std::vector<extent> layer_numbers(const checkpoint& from, const released_layer& layer,
                                              std::string_view layers) {
  std::vector<extent> numbers;
  for (const std::string& name : from.names()) {
    if (!name.starts_with(layers)) continue;
    const char* const first = name.data() + layers.size();
    extent number = 0;
    const auto [end, fault] = std::from_chars(first, name.data() + name.size(), number);
    const bool has_number = fault == std::errc() && *end == '.' &&
                            std::to_string(number) == std::string_view(first, end);
    if (has_number && is_released_name(layer, end + 1)) numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

FMOE_INLINE layer_arrays arrays_for(const released_layer& layer, const checkpoint& from,
                                    const load_options& options) {
  layer_arrays result{from.file(), {}, {}, [&from] { return from.names(); }};
  for (const std::string& name : from.names()) {
    if (!name.starts_with(options.prefix)) continue;
    const auto rest = std::string_view(name).substr(options.prefix.size());
    if (is_released_name(layer, rest))
      result.arrays.emplace(name, options.mapped ? from.mapped_at(name) : from.at(name));
  }
  add_metadata(result, from);
  return result;
}

FMOE_INLINE void add_metadata(layer_arrays& to, const checkpoint& from) {
  std::vector<std::string> names;
  for (const auto& [name, a] : to.arrays) names.push_back(name);
  auto [agreed, disputed] = from.metadata_beside(names);
  to.metadata = std::move(agreed);
  to.disputed = std::move(disputed);
}

}  // namespace fmoe::io
