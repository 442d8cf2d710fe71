// SPDX-License-Identifier: MIT
// Files by position, which every system has in its own way, and their paths as text. Only
// open_file-inl.hpp calls a system; it knows POSIX (Linux, macOS) and Windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmoe/base/separate.hpp>

#if defined(_WIN32)
#include <mutex>
#endif

namespace fmoe::detail {

// An open file. What fails leaves its reason in errno.
class open_file {
 public:
  // How a file is opened: without waiting for the other end of a FIFO, or as a new file, which did
  // not exist, or to write to what exists, or as a folder, which can only be flushed.
  enum class way : std::uint8_t { to_read, as_new, to_write, as_folder };

  open_file() = default;
  open_file(const std::filesystem::path& path, way how);
  open_file(const open_file&) = delete;
  ~open_file();

  bool is_open() const { return number_ >= 0; }

  // Returns the size of a regular file, and nothing for anything else.
  std::optional<std::uint64_t> size() const;

  // These return the bytes that were read or written, which may be fewer, or -1.
  std::ptrdiff_t read(std::uint64_t from, std::span<std::byte> to) const;
  std::ptrdiff_t write(std::span<const std::byte> bytes);
  std::ptrdiff_t write(std::uint64_t to, std::span<const std::byte> bytes);

  // Maps the first bytes of the file, at least one, until the last copy of the pointer has gone.
  // The system reads a page when it is first touched. Returns null where the system cannot.
  std::shared_ptr<const std::byte> map(std::size_t bytes) const;

  // Returns when a crash of the machine cannot lose what was written, where systems can tell.
  bool flush();
  bool close();

 private:
  int number_ = -1;
#if defined(_WIN32)
  mutable std::mutex mutex_;  // a position to read from or write to belongs to the file
#endif
};

// A number that no other process has at this time.
int process_number();

// Paths as text: in UTF-8 on Windows, and as they are elsewhere.
std::string path_text(const std::filesystem::path& path);
std::filesystem::path path_named(std::string_view text);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/base/open_file-inl.hpp>
#endif
