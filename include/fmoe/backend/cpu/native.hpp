// SPDX-License-Identifier: MIT
// Names of instruction sets, for code that is compiled once for each: the levels of the x86-64
// psABI, and ARM64, all of whose CPUs have NEON. `dispatched` stands for the best of those that a
// program holds kernels of.
#pragma once

#include <fmoe/base/compiler.hpp>

namespace fmoe::cpu {

struct baseline {
  static constexpr const char* name = "baseline";
};
struct x86_64_v2 {
  static constexpr const char* name = "x86-64-v2";
};
struct x86_64_v3 {
  static constexpr const char* name = "x86-64-v3";
};
struct x86_64_v4 {
  static constexpr const char* name = "x86-64-v4";
};
struct arm64 {
  static constexpr const char* name = "arm64";
};
struct dispatched {
  static constexpr const char* name = "dispatched";
};

// The level that this translation unit is compiled for. Two units that are compiled for the same
// level share kernels, so give them the same flags. With FMOE_DISPATCH it is chosen at run time.
#if defined(FMOE_DISPATCH)
using native = dispatched;
#if !defined(FMOE_SEPARATE_COMPILATION)
#error "FMOE_DISPATCH needs FMOE_SEPARATE_COMPILATION: fmoe::fmoe defines both"
#endif
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && \
    defined(__AVX512VL__)
using native = x86_64_v4;
#elif defined(__AVX2__) && (defined(__FMA__) || FMOE_MSVC)
using native = x86_64_v3;
#elif defined(__SSE4_2__)
using native = x86_64_v2;
#elif defined(__aarch64__)
using native = arm64;
#else
using native = baseline;
#endif

}  // namespace fmoe::cpu
