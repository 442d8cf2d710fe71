// SPDX-License-Identifier: MIT
// One file of a checkpoint, whatever its format.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmoe/io/gguf-inl.hpp>
#include <fmoe/io/safetensors_header-inl.hpp>

namespace fmoe::io {

class shard {
 public:
  shard() = default;
  shard(const shard&) = delete;
  virtual ~shard() = default;

  virtual std::vector<std::string> names() const = 0;
  virtual const strings_by_name& metadata() const = 0;

  // These throw missing_tensor. What is mapped changes if the file does.
  virtual array read(const std::string& name) const = 0;
  virtual array mapped(const std::string& name) const { return read(name); }
  virtual array outline(const std::string& name) const = 0;

 protected:
  template <class T>
  static const T& found(const std::map<std::string, T>& by_name, const std::string& name,
                        const std::filesystem::path& file) {
    const auto at = by_name.find(name);
    if (at == by_name.end())
      throw error(errc::missing_tensor, "is missing, and the index says it is here", 0, name, file);
    return at->second;
  }
};

// A safetensors file, of which only the header is read first.
class safetensors_shard : public shard {
 public:
  explicit safetensors_shard(const std::filesystem::path& file)
      : in_(file),
        file_(std::make_shared<const std::filesystem::path>(file)) {
    located_header found = read_safetensors_header(in_);
    for (tensor_entry& t : found.header.tensors) entries_.emplace(t.name, std::move(t));
    metadata_ = std::move(found.header.metadata);
    data_at_ = found.data_at;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : entries_) result.push_back(name);
    return result;
  }

  const strings_by_name& metadata() const override { return metadata_; }

  array read(const std::string& name) const override {
    const tensor_entry& t = found(entries_, name, *file_);
    const auto& [begin, end] = t.range;
    const auto data = std::make_shared<const memory>(end - begin);
    const std::span<std::byte> bytes(data->data(), end - begin);
    in_.read(data_at_ + begin, bytes);
    return array(t.type, t.shape, bytes, data, name, file_).lasting();
  }
  array mapped(const std::string& name) const override {
    const tensor_entry& t = found(entries_, name, *file_);
    std::call_once(is_mapped_, [&] { content_ = in_.content(); });
    const std::span bytes(content_.get() + data_at_ + t.range[0], t.range[1] - t.range[0]);
    return array(t.type, t.shape, bytes, content_, name, file_);
  }
  array outline(const std::string& name) const override {
    const tensor_entry& t = found(entries_, name, *file_);
    return array::outline(t.type, t.shape, name, file_);
  }

 private:
  input in_;
  mutable std::once_flag is_mapped_;
  mutable std::shared_ptr<const std::byte> content_;
  std::shared_ptr<const std::filesystem::path> file_;
  std::map<std::string, tensor_entry> entries_;
  strings_by_name metadata_;
  std::uint64_t data_at_ = 0;
};

// A GGUF file, or all files of a model that ggml has split: the file that says "split.count" has
// the others beside it, as NAME-00002-of-00003.gguf. The metadata are those of the first file.
class gguf_shard : public shard {
 public:
  // Throws as gguf::read does, io for a part that does not exist, and duplicate_key for a tensor of
  // two parts.
  explicit gguf_shard(const std::filesystem::path& file) : file_(file) {
    const gguf opened = gguf::read(file);
    const auto parts = opened.find_value<std::uint32_t>("split.count").value_or(1);
    for (std::uint32_t i = 1; i <= std::max(parts, 1u); ++i) {
      const gguf part = parts < 2 ? opened : gguf::read(part_beside(file, i, parts));
      if (i == 1) metadata_ = part.metadata();
      for (const array& a : part.arrays())
        if (!arrays_.emplace(a.name(), a).second)
          throw error(errc::duplicate_key, "is in two parts of the model", 0, a.name(),
                      part.file());
    }
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, a] : arrays_) result.push_back(name);
    return result;
  }
  const strings_by_name& metadata() const override { return metadata_; }
  array read(const std::string& name) const override { return found(arrays_, name, file_); }
  array outline(const std::string& name) const override { return read(name).outlined(); }

 private:
  static std::string part_ending(std::uint32_t part, std::uint32_t parts) {
    const auto digits = [](std::uint32_t n) {
      const std::string text = std::to_string(n);
      return std::string(5 - std::min<extent>(5, text.size()), '0') + text;
    };
    return '-' + digits(part) + "-of-" + digits(parts) + ".gguf";
  }
  static std::filesystem::path part_beside(const std::filesystem::path& file, std::uint32_t part,
                                           std::uint32_t parts) {
    const std::string name = path_text(file.filename()), ending = part_ending(part, parts);
    const std::string_view rest = std::string_view(ending).substr(6);  // behind the part's number
    if (name.size() < ending.size() || !name.ends_with(rest))
      throw error(errc::conflict,
                  "is one of " + std::to_string(parts) + " parts, and its name does not end as " +
                      in_quotes(part_ending(1, parts)) + " does",
                  0, {}, file);
    const auto beside = path_named(name.substr(0, name.size() - ending.size()) + ending);
    const std::filesystem::path path = file.parent_path() / beside;
    if (type_of(path) == std::filesystem::file_type::not_found)
      throw error(errc::io, "is a part of the model, which is not there", 0, {}, path);
    return path;
  }

  std::filesystem::path file_;
  arrays_by_name arrays_;
  strings_by_name metadata_;
};

// The units of layer 3 of a cross-layer transcoder, as circuit-tracer 0.5 saves them:
// W_enc_3.safetensors with W_enc_3, b_enc_3, b_dec_3 and threshold_3, and W_dec_3.safetensors
// beside it. Names have no number here.
class transcoder_shard : public shard {
 public:
  // What stands behind "W_enc" in the name of such a file, as "_3"; nothing for another one.
  static std::string ending_of(const std::filesystem::path& file) {
    const std::string name = path_text(file.filename()), end = ".safetensors";
    const bool has_form = (name.starts_with("W_enc_") || name.starts_with("W_dec_")) &&
                          name.ends_with(end) && name.size() > 6 + end.size();
    const std::string number = has_form ? name.substr(6, name.size() - 6 - end.size()) : "";
    const bool is_number = number.find_first_not_of("0123456789") == number.npos;
    return number.empty() || !is_number ? "" : '_' + number;
  }

  explicit transcoder_shard(const std::filesystem::path& file)
      : ending_(ending_of(file)),
        encoder_(beside(file, "W_enc")),
        decoder_(beside(file, "W_dec")) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> result = encoder_.names();
    for (std::string& name : decoder_.names()) result.push_back(std::move(name));
    for (std::string& name : result)
      if (name.ends_with(ending_)) name.resize(name.size() - ending_.size());
    return result;
  }
  const strings_by_name& metadata() const override { return encoder_.metadata(); }
  array read(const std::string& name) const override { return part(name).read(name + ending_); }
  array mapped(const std::string& name) const override { return part(name).mapped(name + ending_); }
  array outline(const std::string& name) const override {
    return part(name).outline(name + ending_);
  }

 private:
  const safetensors_shard& part(const std::string& name) const {
    return name == "W_dec" ? decoder_ : encoder_;
  }
  std::filesystem::path beside(const std::filesystem::path& file, const char* name) const {
    const auto path = file.parent_path() / path_named(name + ending_ + ".safetensors");
    if (type_of(path) == std::filesystem::file_type::not_found)
      throw error(errc::io, "is a part of the cross-layer transcoder, which is not there", 0, {},
                  path);
    return path;
  }

  std::string ending_;
  safetensors_shard encoder_, decoder_;
};

// Opens a safetensors or a GGUF file, whose first bytes tell which it is.
inline std::unique_ptr<const shard> open_shard(const std::filesystem::path& file) {
  if (!transcoder_shard::ending_of(file).empty())
    return std::make_unique<const transcoder_shard>(file);
  if (is_gguf(input(file))) return std::make_unique<const gguf_shard>(file);
  return std::make_unique<const safetensors_shard>(file);
}

}  // namespace fmoe::io
