// SPDX-License-Identifier: MIT
// The exception of reading and writing files: it has a code for the kind of fault, and tells where
// in which file the fault is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmoe/base/open_file.hpp>
#include <fmoe/io/utf8.hpp>

namespace fmoe::io {

// The kinds of faults in a file, or in a layer that is made from one.
enum class errc : std::uint8_t {
  truncated,        // fewer bytes than the format needs or the header promises
  header_len,       // the length of the header is beyond the file or the limit
  utf8,             // the header is not UTF-8
  json,             // the header is not JSON, or nested deeper than 16
  duplicate_key,    // two equal names in one JSON object
  schema,           // the header is JSON, but not as the format describes
  dtype,            // an unknown element type, or one that the caller cannot take
  limit,            // a rank above 32
  overflow,         // a number that does not fit
  size_mismatch,    // the shape needs another number of bytes than there are
  layout,           // gaps, overlaps, or bytes after the end
  magic,            // not a .npy file
  version,          // a .npy file of another version than 1.0, 2.0 or 3.0
  header,           // the header of a .npy file is not the dict that the format describes
  io,               // the operating system refused
  missing_tensor,   // no tensor of this name
  shape,            // a tensor has another shape than the caller expects
  conflict,         // the file and the caller's options contradict each other
  extra_tensor,     // a tensor of the layer that nothing reads
  missing_setting,  // a setting that the layer needs and nothing tells
};

constexpr const char* name_of(errc code) {
  constexpr const char* names[] = {
      "truncated",      "header_len", "utf8",     "json",         "duplicate_key",
      "schema",         "dtype",      "limit",    "overflow",     "size_mismatch",
      "layout",         "magic",      "version",  "header",       "io",
      "missing_tensor", "shape",      "conflict", "extra_tensor", "missing_setting"};
  return names[static_cast<int>(code)];
}

// Returns `text` in double quotes, cut at `longest` bytes. Only spaces and letters that a reader
// sees stand as they are, and other bytes as numbers: text from a file must not forge log lines.
inline std::string in_quotes(std::string_view text, std::size_t longest = 64) {
  constexpr char hex[] = "0123456789abcdef";
  std::string result = "\"";
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text[0]);
    const char marked[] = {'\\', text[0]}, code[] = {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    const std::size_t letter = text[0] == ' ' ? 1 : visible_letter(text);
    std::string_view shown = text.substr(0, letter);
    if (byte == '"' || byte == '\\') shown = {marked, sizeof marked};
    else if (letter == 0) shown = {code, sizeof code};
    if (result.size() - 1 + shown.size() > longest) return result + "\"...";
    result += shown;
    text.remove_prefix(letter == 0 ? 1 : letter);
  }
  return result + '"';
}

// Reading, loading and writing throw this.
struct error : std::runtime_error {
  error(errc fault, std::string_view text, std::uint64_t offset = 0, std::string tensor_name = {},
        std::filesystem::path path = {})
      : std::runtime_error(message(fault, text, offset, tensor_name, path)),
        code(fault),
        byte_offset(offset),
        tensor(std::move(tensor_name)),
        file(std::move(path)) {}

  errc code;
  std::uint64_t byte_offset;   // in the file; 0 if the fault has no position
  std::string tensor;          // empty if the fault does not belong to a tensor
  std::filesystem::path file;  // empty for bytes in memory

 private:
  static std::string message(errc fault, std::string_view text, std::uint64_t offset,
                             std::string_view tensor_name, const std::filesystem::path& path) {
    std::string result = "[io] ";
    if (!path.empty()) result += in_quotes(detail::path_text(path), 4096) + ": ";
    if (!tensor_name.empty()) result += "tensor " + in_quotes(tensor_name) + ' ';
    result.append(text).append(" (").append(name_of(fault));
    if (offset != 0) result += " at byte " + std::to_string(offset);
    return result + ')';
  }
};

}  // namespace fmoe::io
