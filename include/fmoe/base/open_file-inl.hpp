// SPDX-License-Identifier: MIT
// Files by the calls of POSIX and of the C library of Windows. No header of Windows is included,
// since its macros would reach programs.
#pragma once

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#if defined(_WIN32)
#include <io.h>
#include <process.h>
#include <share.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <fmoe/base/open_file.hpp>

namespace fmoe::detail {

// macOS refuses to read or write 2 GB at once, and Windows counts in 32 bits.
inline constexpr std::size_t most_at_once = std::size_t{1} << 30;

#if defined(_WIN32)

FMOE_INLINE open_file::open_file(const std::filesystem::path& path, way how) {
  if (how == way::as_folder) return;  // Windows cannot flush one
  const int flags = _O_BINARY | _O_NOINHERIT |
                    (how == way::to_read    ? _O_RDONLY
                     : how == way::to_write ? _O_WRONLY
                                            : _O_WRONLY | _O_CREAT | _O_EXCL);
  _wsopen_s(&number_, path.c_str(), flags, _SH_DENYNO, _S_IREAD | _S_IWRITE);
}

FMOE_INLINE std::optional<std::uint64_t> open_file::size() const {
  struct _stat64 status{};
  if (_fstat64(number_, &status) != 0 || (status.st_mode & _S_IFMT) != _S_IFREG) return {};
  return static_cast<std::uint64_t>(status.st_size);
}

FMOE_INLINE std::ptrdiff_t open_file::read(std::uint64_t from, std::span<std::byte> to) const {
  const std::lock_guard lock(mutex_);
  if (_lseeki64(number_, static_cast<std::int64_t>(from), SEEK_SET) < 0) return -1;
  return _read(number_, to.data(), static_cast<unsigned>(std::min(to.size(), most_at_once)));
}

FMOE_INLINE std::ptrdiff_t open_file::write(std::span<const std::byte> bytes) {
  return _write(number_, bytes.data(), static_cast<unsigned>(std::min(bytes.size(), most_at_once)));
}

FMOE_INLINE std::ptrdiff_t open_file::write(std::uint64_t to, std::span<const std::byte> bytes) {
  const std::lock_guard lock(mutex_);
  if (_lseeki64(number_, static_cast<std::int64_t>(to), SEEK_SET) < 0) return -1;
  return write(bytes);
}

FMOE_INLINE std::shared_ptr<const std::byte> open_file::map(std::size_t) const { return nullptr; }

FMOE_INLINE bool open_file::flush() { return number_ < 0 || _commit(number_) == 0; }

FMOE_INLINE bool open_file::close() { return _close(std::exchange(number_, -1)) == 0; }

FMOE_INLINE int process_number() { return _getpid(); }

#else

FMOE_INLINE open_file::open_file(const std::filesystem::path& path, way how) {
  const int flags = how == way::to_read    ? O_RDONLY | O_NONBLOCK | O_NOCTTY
                    : how == way::as_new   ? O_WRONLY | O_CREAT | O_EXCL
                    : how == way::to_write ? O_WRONLY
                                           : O_RDONLY | O_DIRECTORY;
  number_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
}

FMOE_INLINE std::optional<std::uint64_t> open_file::size() const {
  struct stat status{};
  if (::fstat(number_, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  return static_cast<std::uint64_t>(status.st_size);
}

FMOE_INLINE std::ptrdiff_t open_file::read(std::uint64_t from, std::span<std::byte> to) const {
  for (;;) {
    const auto got =
        ::pread(number_, to.data(), std::min(to.size(), most_at_once), static_cast< ::off_t>(from));
    if (got >= 0 || errno != EINTR) return got;
  }
}

FMOE_INLINE std::ptrdiff_t open_file::write(std::span<const std::byte> bytes) {
  for (;;) {
    const auto done = ::write(number_, bytes.data(), std::min(bytes.size(), most_at_once));
    if (done >= 0 || errno != EINTR) return done;
  }
}

FMOE_INLINE std::ptrdiff_t open_file::write(std::uint64_t to, std::span<const std::byte> bytes) {
  for (;;) {
    const auto done = ::pwrite(number_, bytes.data(), std::min(bytes.size(), most_at_once),
                               static_cast< ::off_t>(to));
    if (done >= 0 || errno != EINTR) return done;
  }
}

FMOE_INLINE std::shared_ptr<const std::byte> open_file::map(std::size_t bytes) const {
  void* const pages = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, number_, 0);
  if (pages == MAP_FAILED) return nullptr;
  return {static_cast<const std::byte*>(pages), [=](const void*) { ::munmap(pages, bytes); }};
}

FMOE_INLINE bool open_file::flush() {
#if defined(F_FULLFSYNC)  // fsync of macOS leaves bytes in the disk's own memory
  if (::fcntl(number_, F_FULLFSYNC) == 0) return true;
#endif
  return number_ < 0 || ::fsync(number_) == 0;
}

FMOE_INLINE bool open_file::close() { return ::close(std::exchange(number_, -1)) == 0; }

FMOE_INLINE int process_number() { return ::getpid(); }

#endif

FMOE_INLINE open_file::~open_file() {
  if (is_open()) close();
}

FMOE_INLINE std::string path_text(const std::filesystem::path& path) {
  const auto text = path.u8string();
  return {text.begin(), text.end()};
}

FMOE_INLINE std::filesystem::path path_named(std::string_view text) {
  return std::u8string(text.begin(), text.end());
}

}  // namespace fmoe::detail
