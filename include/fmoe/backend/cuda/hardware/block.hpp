// SPDX-License-Identifier: MIT
// What a kernel sees of its block on a GPU; emulated/block.hpp is the same on the CPU. nvcc alone
// compiles this.
#pragma once

#include <cuda_runtime.h>

#include <fmoe/backend/cuda/hardware/warpgroup.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>
#include <fmoe/backend/cuda/kernels/tensor_words.hpp>

namespace fmoe::cuda {

// One thread of a block. Shared arrays follow each other in the memory that the launch asks for.
class hardware_block {
 public:
  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ extent block() const { return blockIdx.x; }

  template <class T>
  __device__ T* array(extent size) {
    extern __shared__ __align__(1024) unsigned char fmoe_shared[];
    T* const made = reinterpret_cast<T*>(fmoe_shared + used_);
    used_ += static_cast<unsigned>((size * sizeof(T) + 15) / 16 * 16);
    return made;
  }

  __device__ void sync() const { __syncthreads(); }
  __device__ unsigned count(bool yes) const {
    return static_cast<unsigned>(__syncthreads_count(yes));
  }
  template <class T>
  __device__ void add(T* to, extent i, T n) const {
    atomicAdd(to + i, n);
  }
  // Neighbours of a shared array, in one access.
  template <unsigned N, class T>
  __device__ pack<T, N> read(const T* from, extent i) const {
    return load_pack<T, N>(from + i);
  }
  template <unsigned N, class T>
  __device__ void write(T* to, extent i, const pack<T, N>& x) const {
    store_pack(to + i, x);
  }

  // Begins to copy N numbers, of which the first `valid` are read and the others become 0. They
  // are there for this thread when it has waited, and for the others behind the next barrier.
  template <unsigned N, class T>
  __device__ void copy(T* to, extent i, const T* from, unsigned valid) const {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to + i));
    constexpr int bytes = N * sizeof(T);
    const unsigned read = valid * static_cast<unsigned>(sizeof(T));
    if constexpr (bytes == access_bytes)
      asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from),
                   "n"(bytes), "r"(read)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from),
                   "n"(bytes), "r"(read)
                   : "memory");
  }
  // Ends a group of the thread's copies.
  __device__ void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until no more than the last Left groups of the thread's copies are under way.
  template <unsigned Left>
  __device__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
  }
  __device__ unsigned ballot(bool yes) const { return __ballot_sync(~0u, yes); }
  template <class T>
  __device__ T shuffle(T value, unsigned lane) const {
    return __shfl_sync(~0u, value, static_cast<int>(lane));
  }
  template <class T>
  __device__ T shuffle_xor(T value, unsigned bits) const {
    return __shfl_xor_sync(~0u, value, static_cast<int>(bits));
  }

  __device__ void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) const {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  __device__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

  // Do warpgroups multiply operands in shared memory? emulated/block.hpp says what these do.
  static constexpr bool has_warpgroups = FMOE_WARPGROUPS;
  template <unsigned Parts>
  __device__ void begin_products(float (&d)[Parts][4]) const {
    cuda::begin_products(d);
  }
  template <math How>
  __device__ void multiply(float (&d)[16][4], const std::uint32_t* from, unsigned a, unsigned b,
                           unsigned word, bool adds) const {
    constexpr unsigned row_bytes = tensor_words<How>::of_row * sizeof(std::uint32_t);
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(from));
    multiply_warpgroup<How>(d, operand_at<row_bytes>(at + a * 4) + word / 4,
                            operand_at<row_bytes>(at + b * 4) + word / 4, adds);
  }
  __device__ void commit_products() const { cuda::commit_products(); }
  template <unsigned Parts>
  __device__ void wait_for_products(float (&d)[Parts][4]) const {
    cuda::wait_for_products(d);
  }
  __device__ void show_products() const { cuda::show_products(); }

 private:
  unsigned used_ = 0;
};

}  // namespace fmoe::cuda
