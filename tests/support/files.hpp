// SPDX-License-Identifier: MIT
// For the tests of io: a temporary folder, whole files as strings, and the error that a call
// throws.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/base/open_file.hpp>
#include <fmoe/io/error.hpp>

class temporary_folder {
 public:
  temporary_folder() {
    static std::atomic<int> made = 0;
    const std::string process = "fmoe-test-" + std::to_string(fmoe::detail::process_number()) + "-";
    do path_ = std::filesystem::temp_directory_path() / (process + std::to_string(made++));
    while (!std::filesystem::create_directory(path_));
  }
  temporary_folder(const temporary_folder&) = delete;
  ~temporary_folder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

  std::size_t entries() const {
    using iterator = std::filesystem::directory_iterator;
    return static_cast<std::size_t>(std::distance(iterator(path_), iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void put(const std::filesystem::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

// Returns a path that C would end at the NUL, and then name `path`.
inline std::filesystem::path with_nul(const std::filesystem::path& path) {
  return path.native() + std::filesystem::path::string_type{'\0', 'b'};
}

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}
inline std::string text_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += static_cast<char>(b);
  return text;
}

// A copy that ends where its memory ends, so that the address sanitizer sees reads behind it.
inline std::vector<std::byte> exact(std::string_view text) {
  const auto bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

template <class F>
fmoe::io::error caught(const F& f) {
  try {
    f();
  } catch (const fmoe::io::error& e) {
    return e;
  }
  throw std::logic_error("no fmoe::io::error was thrown");
}
