// SPDX-License-Identifier: MIT
// What every system does in its own way: files by position, pages of memory, sizes of caches, paths
// as bytes. Only platform-inl.hpp calls a system; it knows POSIX (Linux, macOS) and Windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <fmoe/base/language.hpp>
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

// Memory from this size on may have pages of this size if it is aligned to it; 0 where there are no
// such pages.
#if defined(__linux__)
inline constexpr std::size_t huge_page = std::size_t{2} << 20;
#else
inline constexpr std::size_t huge_page = 0;
#endif
void ask_for_huge_pages(void* p, std::size_t bytes) noexcept;

// Returns the bytes of the cache of level 1, 2 or 3 that holds data, or 0 if nothing tells them.
std::size_t cache_bytes(int level);

#if defined(__aarch64__)
// True if the CPU has the dot products of four integers of 8 bits (SDOT).
bool has_int8_dots();

// True if the CPU has the products of matrices of such integers (SMMLA), and of bf16 numbers
// (BFMMLA).
bool has_int8_matrices();
bool has_bf16_matrices();
#endif

// Asks the system for the registers of AMX, which it gives to programs that ask, and returns
// whether this program has them. The CPU must have them.
bool may_use_tiles();

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/base/platform-inl.hpp>
#endif
