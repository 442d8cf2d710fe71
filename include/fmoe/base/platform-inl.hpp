// SPDX-License-Identifier: MIT
// The calls of POSIX and of the C library of Windows. No header of Windows is included, since its
// macros would reach programs.
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
#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif

#include <fmoe/base/compiler.hpp>
#include <fmoe/base/platform.hpp>

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

FMOE_INLINE void ask_for_huge_pages([[maybe_unused]] void* p,
                                    [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  ::madvise(p, bytes, MADV_HUGEPAGE);
#endif
}

#if FMOE_X86_64
// As the CPU tells: Intel's in leaf 4, AMD's in the same form elsewhere.
inline std::size_t cache_bytes_of_cpu(int level) {
  for (const unsigned leaf : {4u, 0x8000001du}) {
    unsigned words[4] = {};
    for (unsigned i = 0; i < 16 && ask_cpuid(leaf, i, words) && (words[0] & 31) != 0; ++i) {
      const bool holds_data = (words[0] & 31) != 2;
      if (!holds_data || static_cast<int>(words[0] >> 5 & 7) != level) continue;
      const std::size_t ways = (words[1] >> 22) + 1, parts = (words[1] >> 12 & 0x3ff) + 1,
                        line = (words[1] & 0xfff) + 1, sets = std::size_t{words[2]} + 1;
      return ways * parts * line * sets;
    }
  }
  return 0;
}
#endif

FMOE_INLINE std::size_t cache_bytes([[maybe_unused]] int level) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  const auto known = ::sysconf(names[level - 1]);
  return known > 0 ? static_cast<std::size_t>(known) : 0;
#elif defined(__APPLE__)
  const char* const names[] = {"hw.l1dcachesize", "hw.l2cachesize", "hw.l3cachesize"};
  std::uint64_t known = 0;
  std::size_t bytes = sizeof known;
  return ::sysctlbyname(names[level - 1], &known, &bytes, nullptr, 0) == 0 ? known : 0;
#elif FMOE_X86_64
  return cache_bytes_of_cpu(level);
#else
  return 0;
#endif
}

#if defined(__aarch64__)
#if defined(__linux__)
FMOE_INLINE bool has_int8_dots() { return (::getauxval(AT_HWCAP) >> 20 & 1) != 0; }
FMOE_INLINE bool has_int8_matrices() { return (::getauxval(AT_HWCAP2) >> 13 & 1) != 0; }
FMOE_INLINE bool has_bf16_matrices() { return (::getauxval(AT_HWCAP2) >> 14 & 1) != 0; }
#elif defined(__APPLE__)
FMOE_INLINE bool has_feature(const char* name) {
  int has = 0;
  std::size_t bytes = sizeof has;
  return ::sysctlbyname(name, &has, &bytes, nullptr, 0) == 0 && has != 0;
}
FMOE_INLINE bool has_int8_dots() { return true; }  // since the first of Apple's
FMOE_INLINE bool has_int8_matrices() { return has_feature("hw.optional.arm.FEAT_I8MM"); }
FMOE_INLINE bool has_bf16_matrices() { return has_feature("hw.optional.arm.FEAT_BF16"); }
#else
FMOE_INLINE bool has_int8_dots() {
#if defined(__ARM_FEATURE_DOTPROD)
  return true;
#else
  return false;
#endif
}
FMOE_INLINE bool has_int8_matrices() { return false; }  // the system is not asked
FMOE_INLINE bool has_bf16_matrices() { return false; }
#endif
#endif

FMOE_INLINE bool may_use_tiles() {
#if defined(__linux__) && FMOE_X86_64 && defined(SYS_arch_prctl)
  constexpr std::int64_t ask_for_state = 0x1023, tiles = 18;  // ARCH_REQ_XCOMP_PERM
  return ::syscall(SYS_arch_prctl, ask_for_state, tiles) == 0;
#else
  return false;
#endif
}

}  // namespace fmoe::detail
