// SPDX-License-Identifier: MIT
// Reads model.safetensors.index.json, which says for each tensor in which file beside it the tensor
// is.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <fmoe/io/file.hpp>
#include <fmoe/io/shard_index.hpp>
#include <fmoe/io/utf8.hpp>

namespace fmoe::io {

// Receives the events of the JSON parser. It checks only the grammar of the members beside
// "weight_map".
class shard_index_judge : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit shard_index_judge(const subject& in) : in_(in) {}

  shard_names judge(std::string_view text) {
    nlohmann::json::sax_parse(text, this);
    if (!found_) in_.fail(errc::schema, 0, "has no weight_map");
    return std::move(result_);
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool binary(binary_t&) override { return other("a binary value"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }

  bool string(string_t& file) override {
    if (!in_map()) return other("a string");
    const bool is_folder = file.empty() || file == "." || file == "..";
    if (is_folder || file.find_first_of(std::string_view("/\0", 2)) != file.npos)
      in_.fail(errc::schema, 0, "is in " + in_quotes(file) + ", which is no file beside the index",
               key_);
    if (!result_.emplace(key_, file).second)
      in_.fail(errc::duplicate_key, 0, "stands twice in the index", key_);
    return true;
  }
  bool key(string_t& text) override {
    key_ = text;
    return true;
  }
  bool start_object(std::size_t) override {
    if (in_map()) other("an object");
    if (depth_ == 1 && key_ == "weight_map") {
      if (found_) in_.fail(errc::duplicate_key, 0, "has two weight maps");
      found_ = mapping_ = true;
    }
    return enter();
  }
  bool end_object() override {
    if (--depth_ == 1) mapping_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_map() || depth_ == 0) other("an array");
    return enter();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    in_.fail(errc::json, position, "is not JSON");
  }

 private:
  static constexpr int max_depth = 16;

  bool in_map() const { return mapping_ && depth_ == 2; }
  bool enter() {
    if (depth_++ == max_depth) in_.fail(errc::json, 0, "is nested deeper than 16");
    return true;
  }
  bool other(const char* what) {
    if (in_map())
      in_.fail(errc::schema, 0, std::string("is in ") + what + " instead of a file", key_);
    const bool is_weight_map = depth_ == 1 && key_ == "weight_map";
    if (depth_ == 0 || is_weight_map)
      in_.fail(errc::schema, 0, std::string("has ") + what + " where an object belongs");
    return true;
  }

  const subject& in_;
  shard_names result_;
  std::string key_;
  int depth_ = 0;
  bool mapping_ = false, found_ = false;
};

FMOE_INLINE shard_names read_shard_index(const std::filesystem::path& file) {
  constexpr std::uint64_t longest = 100000000;
  const input in(file);
  if (in.size > longest) in.fail(errc::limit, 0, "is longer than 100 MB");
  std::string text(in.size, '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  if (const auto at = utf8_fault(text); at != text.size()) in.fail(errc::utf8, at, "is not UTF-8");
  if (text.starts_with("\xEF\xBB\xBF")) in.fail(errc::json, 0, "has a byte order mark");
  if (const auto at = text.find('\0'); at != text.npos) in.fail(errc::json, at, "has a NUL");
  return shard_index_judge(in).judge(text);
}

}  // namespace fmoe::io
