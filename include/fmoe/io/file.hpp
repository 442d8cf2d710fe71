// SPDX-License-Identifier: MIT
// Regular files, which are read by position and replaced as a whole. Bytes in memory are read
// through the same interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/open_file.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/io/error.hpp>

namespace fmoe::io {

// A file that is being read, or about to be written.
struct subject {
  [[noreturn]] void fail(errc code, std::uint64_t at, const std::string& text,
                         std::string tensor = {}) const;

  std::filesystem::path file;  // empty for bytes in memory
  std::uint64_t size = 0;
};

class input : public subject {
 public:
  // Refuses everything but regular files, without waiting for the other end of a FIFO.
  explicit input(const std::filesystem::path& path);

  // The bytes must outlive the input.
  input(std::span<const std::byte> bytes, const std::filesystem::path& name);

  // Fills `to`. All bytes asked for must lie below `size`.
  void read(std::uint64_t from, std::span<std::byte> to) const;

  // Returns all bytes, which live as long as the pointer: the file's own, where the system maps
  // files, so that a page is read when it is first touched, and a copy otherwise. What is mapped
  // must not become shorter meanwhile, since the system ends a program that reads behind its end.
  std::shared_ptr<const std::byte> content() const;

 private:
  open_file open_;
  const std::byte* memory_ = nullptr;
};

// Returns the type of what a path leads to: not_found if there is nothing, and none if the system
// refuses to say. Throws io for a path with a NUL.
std::filesystem::file_type type_of(const std::filesystem::path& path);

// Replaces the file by one that consists of these pieces. If this fails, an old file stays
// unchanged. A symbolic link is replaced, too, and what it leads to stays unchanged. A program that
// is killed here may leave a file named .fmoe-... beside the old one. Throws io.
void write_file(const std::filesystem::path& file,
                std::span<const std::span<const std::byte>> pieces);

class replacement;

// A file that several processes write, each its bytes, in a folder that all of them see. One
// creates it; the others open what it creates. All functions throw io.
class file_in_parts {
 public:
  // Creates a successor of the file, which takes its place in `replace` and vanishes if that is not
  // called.
  explicit file_in_parts(const std::filesystem::path& file);
  // Opens a successor that another process has created.
  file_in_parts(const std::filesystem::path& file, const std::filesystem::path& successor);
  ~file_in_parts();

  std::filesystem::path successor() const;
  void write(std::uint64_t at, std::span<const std::byte> bytes);
  // Returns when what this process wrote is on the disk.
  void finish();
  // Only who created it calls this, when all have finished.
  void replace();

 private:
  open_file& open();

  std::filesystem::path file_;
  std::unique_ptr<replacement> created_;
  std::optional<open_file> opened_;
};

}  // namespace fmoe::io

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/io/file-inl.hpp>
#endif
