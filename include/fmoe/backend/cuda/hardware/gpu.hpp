// SPDX-License-Identifier: MIT
// A GPU: its memory, and a stream for the work of a caller. nvcc alone compiles this.
#pragma once

#include <string>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/hardware/block.hpp>

#if defined(FMOE_CUBLASLT)
#include <fmoe/backend/cuda/hardware/blas.hpp>
#endif

namespace fmoe::cuda {

// Throws an error that names what failed.
inline void expects_success(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(result));
}

// The blocks that a multiprocessor shall have room for, unless a kernel says.
template <class Kernel>
inline constexpr unsigned blocks_an_sm = 2;
template <class Kernel>
  requires(Kernel::blocks_an_sm > 0)
inline constexpr unsigned blocks_an_sm<Kernel> = Kernel::blocks_an_sm;

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_an_sm<Kernel>)
    run_kernel(const __grid_constant__ Kernel kernel) {
  hardware_block block;
  kernel(block);
}

inline constexpr unsigned threads_of_each = 256;

template <class F>
__global__ void __launch_bounds__(threads_of_each, 2)
    run_each(const __grid_constant__ F f, extent n) {
  const extent i = extent{blockIdx.x} * threads_of_each + threadIdx.x;
  if (i < n) f(i);
}

class gpu {
 public:
#if defined(FMOE_CUBLASLT)
  static constexpr bool has_blas = true;
  using blas = cuda::blas;
#else
  static constexpr bool has_blas = false;
#endif

  gpu(int number, const device_options&) : number_(number) {}

  // Returns the number of GPUs, 0 where there is no driver.
  static int count() {
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
  }

  std::string name() const {
    cudaDeviceProp properties{};
    expects_success(cudaGetDeviceProperties(&properties, number_), "the GPU's name");
    return properties.name;
  }
  // The rates that follow from the GPU's clocks and units. L2 is taken as that of an H100 or an
  // A100.
  fmoe::machine machine() const {
    const auto ask = [&](cudaDeviceAttr what) {
      int value = 0;
      expects_success(cudaDeviceGetAttribute(&value, what, number_), "what the GPU is");
      return static_cast<double>(value);
    };
    const bool is_hopper = ask(cudaDevAttrComputeCapabilityMajor) >= 9;
    fmoe::machine m = is_hopper ? h100() : a100();
    const double clock = ask(cudaDevAttrClockRate) * 1e3,
                 cores = ask(cudaDevAttrMultiProcessorCount),
                 units = ask(cudaDevAttrComputeCapabilityMajor) == 8 &&
                                 ask(cudaDevAttrComputeCapabilityMinor) == 0
                             ? 64
                             : 128;
    const double flops = 2 * units * clock * cores, before = m.every.flops;
    for (double* rate : {&m.every.flops, &m.every.int16_dots, &m.every.int8_dots,
                         &m.every.bf16_dots, &m.every.l2, &m.every.l3, &m.gpu.tf32_dots})
      *rate *= flops / before;
    // Two transfers a clock.
    const double memory =
        2 * ask(cudaDevAttrMemoryClockRate) * 1e3 * ask(cudaDevAttrGlobalMemoryBusWidth) / 8;
    if (memory > 0) m.every.memory = memory;
    m.l2 = m.l3 = static_cast<extent>(ask(cudaDevAttrL2CacheSize));
    m.one = m.every;
    m.name = name();
    return m;
  }

  std::string key() const { return "gpu " + std::to_string(number_); }

  void* allocate(extent bytes) const {
    use(number_);
    void* p = nullptr;
    if (bytes == 0) return p;
    const cudaError_t result = cudaMalloc(&p, bytes);
    if (result == cudaErrorMemoryAllocation) static_cast<void>(cudaGetLastError());
    expects_success(result, (std::to_string(bytes) + " bytes of memory").c_str());
    return p;
  }
  void release(void* p) const noexcept { static_cast<void>(cudaFree(p)); }

  class queue {
   public:
    explicit queue(const gpu& on) : number_(on.number_) {
      use(number_);
      expects_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    }
    queue(const queue&) = delete;
    ~queue() { static_cast<void>(cudaStreamDestroy(stream_)); }

    void copy_in(void* device, const void* host, extent bytes) {
      use(number_);
      expects_success(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_),
                      "a copy to the GPU");
    }
    void copy_out(void* host, const void* device, extent bytes) {
      use(number_);
      expects_success(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_),
                      "a copy from the GPU");
    }
    void wait() { expects_success(cudaStreamSynchronize(stream_), "a step"); }

#if defined(FMOE_CUBLASLT)
    // Returns false if cuBLASLt does not take the operands.
    bool multiply(const blas& by, const blas::kernel& k, const blas::product& p) {
      use(number_);
      return by.run(p, k, stream_);
    }
#endif

    template <class Kernel>
    void launch(const char* step, const Kernel& kernel, extent blocks) {
      if (blocks == 0) return;
      use(number_);
      if constexpr (Kernel::shared_bytes > (extent{48} << 10))
        expects_success(
            cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(Kernel::shared_bytes)),
            step);
      run_kernel<<<grid(step, blocks), Kernel::threads, Kernel::shared_bytes, stream_>>>(kernel);
      expects_success(cudaGetLastError(), step);
    }
    template <class F>
    void each(const char* step, const F& f, extent n) {
      if (n == 0) return;
      use(number_);
      run_each<<<grid(step, divide_up(n, threads_of_each)), threads_of_each, 0, stream_>>>(f, n);
      expects_success(cudaGetLastError(), step);
    }

   private:
    static unsigned grid(const char* step, extent blocks) {
      constexpr extent most = (extent{1} << 31) - 1;
      if (blocks > most)
        throw error(std::string("[cuda] ") + step + " has more blocks than a GPU takes: give it " +
                    "less workspace");
      return static_cast<unsigned>(blocks);
    }

    int number_;
    cudaStream_t stream_ = nullptr;
  };

 private:
  static void use(int number) { expects_success(cudaSetDevice(number), "the GPU"); }

  int number_;
};

}  // namespace fmoe::cuda
