// SPDX-License-Identifier: MIT
// The products of a warpgroup, which is four warps, on tensor cores that read both operands from
// shared memory: wgmma of the PTX ISA. A GPU of compute capability 9.0 has them, where nvcc
// compiles for sm_90a. Elsewhere the functions of this file are never called.
#pragma once

#include <cstdint>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/kernels/number.hpp>

namespace fmoe::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define FMOE_WARPGROUPS 1
#else
#define FMOE_WARPGROUPS 0
#endif

// How tensor cores find an operand: rows of RowBytes, 128 or 64, from `place` on, with their words
// where tensor_words::place() says.
template <unsigned RowBytes>
__device__ std::uint64_t operand_at(unsigned place) {
  constexpr std::uint64_t pattern = RowBytes == 128 ? 1 : 2, eight_rows = 8 * RowBytes / 16;
  return (place & 0x3ffff) >> 4 | std::uint64_t{1} << 16 | eight_rows << 32 | pattern << 62;
}

// d [64, 128] (+)= a b of tf32 or bf16 numbers, 32 bytes along the sum; a thread has 16 parts of d.
// It runs until wait_for_products().
#define FMOE_PART(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define FMOE_PRODUCT(shape, transposes)                                                         \
  asm volatile(                                                                                 \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned." shape           \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "   \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "   \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, p, 1, 1" transposes    \
      ";\n}\n"                                                                                  \
      : FMOE_PART(0), FMOE_PART(1), FMOE_PART(2), FMOE_PART(3), FMOE_PART(4), FMOE_PART(5),     \
        FMOE_PART(6), FMOE_PART(7), FMOE_PART(8), FMOE_PART(9), FMOE_PART(10), FMOE_PART(11),   \
        FMOE_PART(12), FMOE_PART(13), FMOE_PART(14), FMOE_PART(15)                              \
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)))
template <math How>
__device__ void multiply_warpgroup(float (&d)[16][4], std::uint64_t a, std::uint64_t b, bool adds) {
#if FMOE_WARPGROUPS
  if constexpr (How == math::bf16) FMOE_PRODUCT("m64n128k16.f32.bf16.bf16", ", 0, 0");
  else FMOE_PRODUCT("m64n128k8.f32.tf32.tf32", "");
#endif
}
#undef FMOE_PRODUCT
#undef FMOE_PART

// The compiler does not move what reads or writes these registers across this.
template <unsigned Parts>
__device__ void hold(float (&d)[Parts][4]) {
  FMOE_UNROLL
  for (unsigned part = 0; part < Parts; ++part)
    asm volatile(""
                 : "+f"(d[part][0]), "+f"(d[part][1]), "+f"(d[part][2]),
                   "+f"(d[part][3])::"memory");
}

// Before the first product of registers that others have written.
template <unsigned Parts>
__device__ void begin_products(float (&d)[Parts][4]) {
#if FMOE_WARPGROUPS
  hold(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void commit_products() {
#if FMOE_WARPGROUPS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <unsigned Parts>
__device__ void wait_for_products(float (&d)[Parts][4]) {
#if FMOE_WARPGROUPS
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  hold(d);
#endif
}
// What the thread has written to shared memory is there for tensor cores behind the next barrier.
__device__ inline void show_products() {
#if FMOE_WARPGROUPS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace fmoe::cuda
