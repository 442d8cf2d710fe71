// SPDX-License-Identifier: MIT
// Checks and reads a safetensors header, a JSON object. It checks the grammar of the whole header
// first, then equal names, then the schema, and last whether the tensors can be as described.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <deque>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <fmoe/io/element_type.hpp>
#include <fmoe/io/file.hpp>
#include <fmoe/io/hints.hpp>
#include <fmoe/io/json_text.hpp>
#include <fmoe/io/little_endian.hpp>
#include <fmoe/io/safetensors_header.hpp>
#include <fmoe/io/utf8.hpp>

namespace fmoe::io {

// Throws unless the ranges follow from the shapes and cover the bytes from `data_at` to the end of
// the file without gaps and overlaps.
inline void check_layout(const std::deque<tensor_entry>& tensors, std::uint64_t data_at,
                         const subject& in) {
  std::vector<const tensor_entry*> order;
  order.reserve(tensors.size());
  for (const auto& t : tensors) {
    const auto bits = count_bits(t.shape, bits_of(t.type));
    const auto [begin, end] = t.range;
    if (!bits) in.fail(errc::overflow, t.at, "has a shape whose size does not fit 64 bits", t.name);
    if (begin > end) in.fail(errc::layout, t.at, "ends before it begins", t.name);
    if (*bits % 8 != 0 || *bits / 8 != end - begin)
      in.fail(errc::size_mismatch, t.at,
              "takes " + std::to_string(*bits) + " bits by its shape and has " +
                  std::to_string(end - begin) + " bytes",
              t.name);
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->range < b->range; });
  std::uint64_t next = 0;
  for (const auto* t : order) {
    if (t->range[0] != next)
      in.fail(errc::layout, t->at,
              "begins at byte " + std::to_string(t->range[0]) + " of the data, where byte " +
                  std::to_string(next) + " is next",
              t->name);
    next = t->range[1];
  }
  const std::uint64_t file_end = data_at + next;
  if (file_end < next) in.fail(errc::overflow, data_at, "has data whose end does not fit 64 bits");
  if (file_end < in.size) in.fail(errc::layout, file_end, "goes on behind its last tensor");
  for (const auto* t : order)
    if (t->range[1] > in.size - data_at)
      in.fail(errc::truncated, in.size, "has data beyond the file's end", t->name);
}

// Receives the events of the JSON parser. Faults of the schema wait until the whole grammar is
// checked.
class header_judge : public nlohmann::json_sax<nlohmann::json> {
 public:
  header_judge(std::string_view text, const subject& in) : text_(text), in_(in), shown_(text, in) {}

  safetensors_header judge() {
    nlohmann::json::sax_parse(json_iterator{&shown_}, json_iterator{}, this);
    if (duplicate_) throw *duplicate_;
    if (fault_) throw *fault_;
    return std::move(result_);
  }

  bool null() override {
    token();
    if (inner() != place::root || key_.text != "__metadata__") misplaced("null");
    return true;
  }
  bool boolean(bool) override { return misplaced_token("a boolean"); }
  bool binary(binary_t&) override { return misplaced_token("a binary value"); }
  bool number_integer(number_integer_t) override { return number(); }
  bool number_unsigned(number_unsigned_t) override { return number(); }
  bool number_float(number_float_t, const string_t&) override { return number(); }

  bool string(string_t&) override {
    const auto raw = raw_string();
    if (inner() == place::metadata) {
      auto& read = result_.metadata;
      read.emplace_hint(read.end(), key_.text, json_unescaped(raw));
    } else if (inner() == place::entry && key_.text == "dtype") {
      const auto value = json_unescaped(raw);
      const auto type = element_type_named(value);
      if (!type) fault(errc::dtype, "has the unknown dtype " + in_quotes(value));
      entry_.type = type.value_or(element_type{});
    } else {
      misplaced("a string");
    }
    return true;
  }

  bool key(string_t&) override {
    const auto text = text_of_key();
    key_ = {text, at_};
    keys_.push_back(key_);
    if (inner() == place::root) tensor_ = text == "__metadata__" ? std::string_view() : text;
    if (inner() == place::entry) fields_ |= field_named(text);
    return true;
  }

  bool start_object(std::size_t) override {
    token();
    if (depth_ == 0) return enter(place::root);
    if (inner() != place::root) {
      misplaced("an object");
      return enter(place::other);
    }
    if (key_.text == "__metadata__") return enter(place::metadata);
    if (key_.text.find('\0') != std::string_view::npos)
      fault(errc::schema, "has a NUL in its name");
    entry_ = {
        std::string(fault_ ? std::string_view() : key_.text), {}, {}, {}, header_at + key_.at};
    fields_ = ranges_ = 0;
    return enter(place::entry);
  }

  bool end_object() override {
    token();
    check_keys();
    if (inner() == place::entry) {
      if (fields_ != all_fields) fault(errc::schema, "lacks one of dtype, shape and data_offsets");
      if (!fault_) result_.tensors.push_back(std::move(entry_));
    }
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    token();
    if (inner() == place::entry && key_.text == "shape") return enter(place::shape);
    if (inner() == place::entry && key_.text == "data_offsets") return enter(place::offsets);
    misplaced("an array");
    return enter(place::other);
  }

  bool end_array() override {
    token();
    if (inner() == place::offsets && ranges_ != 2)
      fault(errc::schema, "has data_offsets that are not two numbers");
    --depth_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    in_.fail(errc::json, header_at + (position > shown_.shown() ? text_.size() : shown_.last()),
             "has a header that is not JSON");
  }

 private:
  enum class place : std::uint8_t { nowhere, root, metadata, entry, shape, offsets, other };
  struct name {
    std::string_view text;
    std::size_t at;
  };
  struct frame {
    place where;
    std::size_t first_key;
  };
  static constexpr std::size_t max_depth = 16;
  static constexpr unsigned all_fields = 7;

  place inner() const { return depth_ == 0 ? place::nowhere : frames_[depth_ - 1].where; }

  bool enter(place where) {
    if (depth_ == max_depth)
      in_.fail(errc::json, header_at + at_, "has a header nested deeper than 16");
    frames_[depth_++] = {where, keys_.size()};
    return true;
  }

  // Returns the text of the event's token; at_ and end_ are its bounds.
  std::string_view token() {
    at_ = text_.find_first_not_of(" \t\r\n,:", end_);
    const bool is_number =
        text_[at_] == '-' || is_digit(text_[at_]);  // the lexer reads one character beyond it
    end_ = is_number ? std::min(text_.find_first_not_of("+-.0123456789Ee", at_), text_.size())
                     : shown_.last() + 1;
    return text_.substr(at_, end_ - at_);
  }

  // Returns what stands between the quotes of the event's token.
  std::string_view raw_string() {
    const auto quoted = token();
    return quoted.substr(1, quoted.size() - 2);
  }

  // The text is valid as long as the judge.
  std::string_view text_of_key() {
    const auto raw = raw_string();
    const bool plain = raw.find('\\') == std::string_view::npos;
    return plain ? raw : unescaped_.emplace_back(json_unescaped(raw));
  }

  unsigned field_named(std::string_view key) {
    if (key == "dtype") return 1;
    if (key == "shape") return 2;
    if (key == "data_offsets") return 4;
    fault(errc::schema, "has the unknown field " + in_quotes(key));
    return 0;
  }

  bool number() {
    const auto digits = token();
    const bool in_shape = inner() == place::shape;
    if (!in_shape && inner() != place::offsets) return misplaced("a number");
    if (!std::all_of(digits.begin(), digits.end(), is_digit)) {
      fault(errc::schema,
            "has the number " + in_quotes(digits) + " where an unsigned integer belongs");
      return true;
    }
    std::uint64_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_too_long = in_shape && value > max_extent;
    if (parsed.ec != std::errc() || is_too_long)
      fault(errc::overflow,
            "has the number " + in_quotes(digits) + ", above " + (in_shape ? "2^48-1" : "2^64-1"));
    if (!in_shape) {
      if (ranges_ < 2) entry_.range[ranges_] = value;
      ranges_ = std::min(ranges_ + 1, 3u);
    } else if (entry_.shape.size() < max_file_rank) {
      entry_.shape.push_back(value);
    } else {
      fault(errc::limit, "has more than 32 axes");
    }
    return true;
  }

  bool misplaced_token(const char* what) {
    token();
    return misplaced(what);
  }
  bool misplaced(const char* what) {
    fault(errc::schema, std::string("has ") + what + " where it does not belong in the header");
    return true;
  }

  void fault(errc code, const std::string& text) {
    if (!fault_) fault_.emplace(code, text, header_at + at_, std::string(tensor_), in_.file);
  }

  void check_keys() {
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(frames_[depth_ - 1].first_key);
    std::sort(first, keys_.end(), [](const name& a, const name& b) {
      return std::pair(a.text, a.at) < std::pair(b.text, b.at);
    });
    const auto twice = std::adjacent_find(
        first, keys_.end(), [](const name& a, const name& b) { return a.text == b.text; });
    if (twice != keys_.end() && !duplicate_) {
      const auto& tensor = inner() == place::root ? twice->text : tensor_;
      duplicate_.emplace(
          errc::duplicate_key,
          "has the name " + in_quotes(twice->text) + " twice in one object of its header",
          header_at + std::next(twice)->at, std::string(tensor), in_.file);
    }
    keys_.erase(first, keys_.end());
  }

  std::string_view text_;
  const subject& in_;
  json_text shown_;
  std::size_t at_ = 0, end_ = 0;

  std::array<frame, max_depth> frames_{};
  std::size_t depth_ = 0;
  std::deque<name> keys_;  // of all open objects
  std::deque<std::string> unescaped_;
  name key_{};

  std::string_view tensor_;  // the tensor whose entry was opened last
  tensor_entry entry_;
  unsigned fields_ = 0, ranges_ = 0;
  safetensors_header result_;
  std::optional<error> duplicate_, fault_;
};

FMOE_INLINE safetensors_header judge_header(std::string_view text, const subject& in) {
  if (const auto at = utf8_fault(text); at != text.size())
    in.fail(errc::utf8, header_at + at, "has a header that is not UTF-8");
  if (text.starts_with("\xEF\xBB\xBF"))
    in.fail(errc::json, header_at, "has a byte order mark before its header");
  auto header = header_judge(text, in).judge();
  check_layout(header.tensors, header_at + text.size(), in);
  return header;
}

FMOE_INLINE located_header read_safetensors_header(const input& in) {
  if (in.size < header_at) in.fail(errc::truncated, in.size, "is too short for a safetensors file");
  std::array<std::byte, header_at> length{};
  in.read(0, length);
  const auto size = load_little<std::uint64_t>(length.data());
  if (size > std::min(max_header, in.size - header_at)) {
    const std::string format = foreign_format(length, path_text(in.file));
    if (!format.empty()) in.fail(errc::header_len, 0, format);
    const std::string_view start(reinterpret_cast<const char*>(length.data()), header_at);
    in.fail(errc::header_len, 0,
            size > max_header
                ? "is not a safetensors file: it begins with " + in_quotes(start) +
                      ", which is no length of a header up to 100 MB"
                : "has a header of " + std::to_string(size) + " bytes, which end behind the file");
  }
  std::string text(size, '\0');
  in.read(header_at, std::as_writable_bytes(std::span(text)));
  return {judge_header(text, in), header_at + size};
}

}  // namespace fmoe::io
