// SPDX-License-Identifier: MIT
// Files are read and replaced.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <system_error>

#include <fmoe/base/memory.hpp>
#include <fmoe/io/file.hpp>

namespace fmoe::io {

FMOE_INLINE void subject::fail(errc code, std::uint64_t at, const std::string& text,
                               std::string tensor) const {
  throw error(code, text, at, std::move(tensor), file);
}

[[noreturn]] inline void fail_io(const std::filesystem::path& file, const std::string& what,
                                 std::error_code reason = {errno, std::generic_category()}) {
  throw error(errc::io, what + ": " + reason.message(), 0, {}, file);
}

// Returns the path for a call of the system, which would cut it at a NUL. Throws io for such a
// path.
inline const std::filesystem::path& whole_path(const std::filesystem::path& path) {
  if (path.native().find(std::filesystem::path::value_type()) != std::string::npos)
    throw error(errc::io, "has a NUL in its path", 0, {}, path);
  return path;
}

FMOE_INLINE std::filesystem::file_type type_of(const std::filesystem::path& path) {
  std::error_code refused;  // the type says enough
  return std::filesystem::status(whole_path(path), refused).type();
}

FMOE_INLINE input::input(const std::filesystem::path& path)
    : subject{path, 0},
      open_(whole_path(path), open_file::way::to_read) {
  if (!open_.is_open()) fail_io(file, "cannot be opened");
  const auto known = open_.size();
  if (!known) fail(errc::io, 0, "is not a regular file");
  size = *known;
}

FMOE_INLINE input::input(std::span<const std::byte> bytes, const std::filesystem::path& name)
    : subject{name, bytes.size()},
      memory_(bytes.data()) {}

FMOE_INLINE void input::read(std::uint64_t from, std::span<std::byte> to) const {
  if (to.empty()) return;
  if (memory_ != nullptr) {
    std::memcpy(to.data(), memory_ + from, to.size());
    return;
  }
  while (!to.empty()) {
    const auto got = open_.read(from, to);
    if (got < 0) fail_io(file, "cannot be read");
    if (got == 0) fail(errc::io, from, "became shorter while it was read");
    to = to.subspan(static_cast<std::size_t>(got));
    from += static_cast<std::uint64_t>(got);
  }
}

FMOE_INLINE std::shared_ptr<const std::byte> input::content() const {
  if (memory_ == nullptr && size != 0)
    if (auto mapped = open_.map(size)) return mapped;
  const auto copy = std::make_shared<const memory>(size);
  read(0, {copy->data(), copy->size()});
  return {copy, copy->data()};
}

// A new file beside `file`, which replaces `file` when it is complete and vanishes otherwise.
class replacement {
 public:
  explicit replacement(const std::filesystem::path& file) : file_(file) {
    old_ = std::filesystem::status(whole_path(file_), refused_);
    if (std::filesystem::exists(old_) && !std::filesystem::is_regular_file(old_))
      throw error(errc::io, "is not a regular file", 0, {}, file_);
    create();
  }
  replacement(const replacement&) = delete;
  ~replacement() {
    if (temporary_.empty()) return;
    if (made_->is_open()) made_->close();  // Windows removes no open file
    std::filesystem::remove(temporary_, refused_);
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto done = made_->write(bytes);
      if (done < 0) fail_io(file_, "cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  const std::filesystem::path& temporary() const { return temporary_; }
  open_file& open() { return *made_; }

  // After this call the new content survives a crash of the machine. Nothing throws once the file
  // is replaced, so the folder is opened before.
  void commit() {
    open_file folder(folder_of(file_), open_file::way::as_folder);
    if (!made_->flush()) fail_io(file_, "cannot be written to the disk");
    if (!made_->close()) fail_io(file_, "cannot be closed");
    std::error_code reason;
    std::filesystem::rename(temporary_, file_, reason);
    if (reason) fail_io(file_, "cannot be replaced", reason);
    temporary_.clear();
    folder.flush();  // some file systems cannot do this; the file itself is complete
  }

 private:
  static std::filesystem::path folder_of(const std::filesystem::path& file) {
    return file.has_parent_path() ? file.parent_path() : ".";
  }

  // The new file gets the permissions of the old one; a device or a FIFO is never replaced.
  void create() {
    const std::string stem = ".fmoe-" + std::to_string(process_number()) + '-';
    for (unsigned i = 0;; ++i) {
      std::filesystem::path made = folder_of(file_) / (stem + std::to_string(i));
      made_.emplace(made, open_file::way::as_new);
      if (made_->is_open()) {
        temporary_ = std::move(made);
        if (std::filesystem::exists(old_))
          std::filesystem::permissions(temporary_, old_.permissions(), refused_);
        return;
      }
      if (errno != EEXIST) fail_io(file_, "cannot be created");
    }
  }

  std::filesystem::path file_, temporary_;
  std::filesystem::file_status old_;
  std::optional<open_file> made_;
  std::error_code refused_;  // by a system, where the rest goes on
};

FMOE_INLINE void write_file(const std::filesystem::path& file,
                            std::span<const std::span<const std::byte>> pieces) {
  replacement successor(file);
  for (const auto piece : pieces) successor.write(piece);
  successor.commit();
}

FMOE_INLINE file_in_parts::file_in_parts(const std::filesystem::path& file)
    : file_(file),
      created_(std::make_unique<replacement>(file)) {}

FMOE_INLINE file_in_parts::file_in_parts(const std::filesystem::path& file,
                                         const std::filesystem::path& successor)
    : file_(file) {
  opened_.emplace(successor, open_file::way::to_write);
  if (!opened_->is_open()) fail_io(file_, "cannot be opened by every rank");
}

FMOE_INLINE file_in_parts::~file_in_parts() = default;

FMOE_INLINE open_file& file_in_parts::open() {
  return created_ != nullptr ? created_->open() : *opened_;
}

FMOE_INLINE std::filesystem::path file_in_parts::successor() const { return created_->temporary(); }

FMOE_INLINE void file_in_parts::write(std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto done = open().write(at, bytes);
    if (done < 0) fail_io(file_, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    at += static_cast<std::uint64_t>(done);
  }
}

FMOE_INLINE void file_in_parts::finish() {
  if (!open().flush()) fail_io(file_, "cannot be written to the disk");
}

FMOE_INLINE void file_in_parts::replace() { created_->commit(); }

}  // namespace fmoe::io
