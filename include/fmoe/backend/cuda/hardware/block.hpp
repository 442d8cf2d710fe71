// SPDX-License-Identifier: MIT
// What a kernel sees of its block on a GPU; emulated/block.hpp is the same on the CPU. nvcc alone
// compiles this.
#pragma once

#include <cuda_runtime.h>

#include <fmoe/base/checked.hpp>

namespace fmoe::cuda {

// One thread of a block. Shared arrays follow each other in the memory that the launch asks for.
class hardware_block {
 public:
  __device__ unsigned thread() const { return threadIdx.x; }
  __device__ extent block() const { return blockIdx.x; }

  template <class T>
  __device__ T* array(extent size) {
    extern __shared__ __align__(16) unsigned char fmoe_shared[];
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
  __device__ unsigned ballot(bool yes) const { return __ballot_sync(~0u, yes); }
  template <class T>
  __device__ T shuffle(T value, unsigned lane) const {
    return __shfl_sync(~0u, value, static_cast<int>(lane));
  }
  template <class T>
  __device__ T shuffle_xor(T value, unsigned bits) const {
    return __shfl_xor_sync(~0u, value, static_cast<int>(bits));
  }

 private:
  unsigned used_ = 0;
};

}  // namespace fmoe::cuda
