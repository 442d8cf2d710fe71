// SPDX-License-Identifier: MIT
// What platform.hpp declares, by calls of the system. No header of Windows is included, since its
// macros would reach programs.
#pragma once

#include <cstdint>
#include <initializer_list>

#if !defined(_WIN32)
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
