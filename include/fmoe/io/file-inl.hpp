// SPDX-License-Identifier: MIT
// Files by the calls of POSIX.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmoe/io/file.hpp>

namespace fmoe::io {

FMOE_INLINE descriptor::~descriptor() {
  if (number_ >= 0) ::close(number_);
}

FMOE_INLINE void subject::fail(errc code, std::uint64_t at, const std::string& text,
                               std::string tensor) const {
  throw error(code, text, at, std::move(tensor), file);
}

[[noreturn]] inline void fail_io(const std::filesystem::path& file, const std::string& what,
                                 int reason = errno) {
  throw error(errc::io, what + ": " + std::generic_category().message(reason), 0, {}, file);
}

// Returns the path for a call of the system, which would cut it at a NUL. Throws io for such a
// path.
inline const char* whole_path(const std::filesystem::path& path) {
  if (path.native().find('\0') != std::string::npos)
    throw error(errc::io, "has a NUL in its path", 0, {}, path);
  return path.c_str();
}

FMOE_INLINE std::filesystem::file_type type_of(const std::filesystem::path& path) {
  std::error_code refused;  // the type says enough
  return std::filesystem::status(whole_path(path), refused).type();
}

FMOE_INLINE input::input(const std::filesystem::path& path)
    : subject{path, 0},
      descriptor_(::open(whole_path(path), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  struct stat status{};
  if (descriptor_.number() < 0) fail_io(file, "cannot be opened");
  if (::fstat(descriptor_.number(), &status) != 0) fail_io(file, "cannot be examined");
  if (!S_ISREG(status.st_mode)) fail(errc::io, 0, "is not a regular file");
  size = static_cast<std::uint64_t>(status.st_size);
}

FMOE_INLINE input::input(std::span<const std::byte> bytes, const std::filesystem::path& name)
    : subject{name, bytes.size()},
      descriptor_(-1),
      memory_(bytes.data()) {}

FMOE_INLINE void input::read(std::uint64_t from, std::span<std::byte> to) const {
  if (to.empty()) return;
  if (memory_ != nullptr) {
    std::memcpy(to.data(), memory_ + from, to.size());
    return;
  }
  while (!to.empty()) {
    const auto got =
        ::pread(descriptor_.number(), to.data(), to.size(), static_cast<::off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io(file, "cannot be read");
    if (got == 0) fail(errc::io, from, "became shorter while it was read");
    to = to.subspan(static_cast<std::size_t>(got));
    from += static_cast<std::uint64_t>(got);
  }
}

// A new file beside `file`, which replaces `file` when it is complete and vanishes otherwise.
class replacement {
 public:
  explicit replacement(const std::filesystem::path& file) : file_(file), descriptor_(create()) {}
  replacement(const replacement&) = delete;
  ~replacement() {
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto done = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail_io(file_, "cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  // After this call the new content survives a crash of the machine. Nothing throws once the file
  // is replaced, so the folder is opened before.
  void commit() {
    const descriptor folder(::open(folder_of(file_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (::fsync(descriptor_.number()) != 0) fail_io(file_, "cannot be written to the disk");
    if (::close(descriptor_.release()) != 0) fail_io(file_, "cannot be closed");
    if (::rename(temporary_.c_str(), file_.c_str()) != 0) fail_io(file_, "cannot be replaced");
    temporary_.clear();
    if (folder.number() >= 0)
      ::fsync(folder.number());  // some file systems cannot do this; the file itself is complete
  }

 private:
  static std::filesystem::path folder_of(const std::filesystem::path& file) {
    return file.has_parent_path() ? file.parent_path() : ".";
  }

  // The new file gets the permissions of the old one; a device or a FIFO is never replaced.
  int create() {
    struct stat old{};
    const bool exists = ::stat(whole_path(file_), &old) == 0;
    if (exists && !S_ISREG(old.st_mode))
      throw error(errc::io, "is not a regular file", 0, {}, file_);
    const auto stem = folder_of(file_) / (".fmoe-" + std::to_string(::getpid()) + '-');
    for (unsigned i = 0;; ++i) {
      temporary_ = stem.native() + std::to_string(i);
      const int made = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (made >= 0) {
        if (exists) static_cast<void>(::fchmod(made, old.st_mode & 07777));
        return made;
      }
      if (errno != EEXIST) {
        const int reason = errno;
        temporary_.clear();
        fail_io(file_, "cannot be created", reason);
      }
    }
  }

  std::filesystem::path file_, temporary_;
  descriptor descriptor_;
};

FMOE_INLINE void write_file(const std::filesystem::path& file,
                            std::span<const std::span<const std::byte>> pieces) {
  replacement successor(file);
  for (const auto piece : pieces) successor.write(piece);
  successor.commit();
}

}  // namespace fmoe::io
