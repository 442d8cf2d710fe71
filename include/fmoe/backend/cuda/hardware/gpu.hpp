// SPDX-License-Identifier: MIT
// A GPU: its memory, its streams, and queues that launch kernels. nvcc alone compiles this.
#pragma once

#include <optional>
#include <string>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/backend/cuda/hardware/block.hpp>
#include <fmoe/backend/cuda/launch_limits.hpp>

#if defined(FMOE_CUBLASLT)
#include <fmoe/backend/cuda/hardware/blas.hpp>
#endif

namespace fmoe::cuda {

// Throws an error that names what failed. What the program can go on after is forgotten.
inline void expects_success(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(result));
}

// Blocks that an SM has at a time, for which the compiler leaves registers: 2 unless a kernel says
// otherwise. Some need more registers on GPUs before sm_90, whose code is longer.
template <class Kernel>
constexpr unsigned blocks_each() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  if constexpr (requires { requires Kernel::is_long_before_sm_90; }) return 1;
#endif
  if constexpr (requires { Kernel::blocks_each; }) return Kernel::blocks_each;
  else return 2;
}

// SharedBytes stands in the name of the kernel, where scripts/nvcc reads it.
template <class Kernel, extent SharedBytes = Kernel::shared_bytes>
__global__ void __launch_bounds__(Kernel::threads, blocks_each<Kernel>())
    run_kernel(const __grid_constant__ Kernel kernel) {
  hardware_block block;
  kernel(block);
}

template <class F>
__global__ void __launch_bounds__(threads_of_each, 2)
    run_each(const __grid_constant__ F f, extent n) {
  const extent i = extent{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}

// Never runs. How many threads it may have says whether kernels are compiled for warpgroups.
inline constexpr int threads_of_warpgroup = 128;
__global__ void __launch_bounds__(FMOE_WARPGROUPS ? threads_of_warpgroup : 32)
    ask_for_warpgroups() {}

class gpu {
 public:
#if defined(FMOE_CUBLASLT)
  static constexpr bool has_blas = true;
  using blas = cuda::blas;
#else
  static constexpr bool has_blas = false;
#endif

  gpu(int number, const device_options&) : number_(number) {
    const in_use device(number);
    cudaFuncAttributes asked{};
    expects_success(cudaFuncGetAttributes(&asked, ask_for_warpgroups), "what the GPU is");
    has_warpgroups_ = asked.maxThreadsPerBlock >= threads_of_warpgroup;
  }

  // Returns the number of GPUs, 0 where there is no driver.
  static int count() {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess) return n;
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  // Returns the number of the GPU to whose memory an address belongs.
  static std::optional<int> device_of(const void* p) {
    cudaPointerAttributes of{};
    if (cudaPointerGetAttributes(&of, p) != cudaSuccess) static_cast<void>(cudaGetLastError());
    const bool is_gpu = of.type == cudaMemoryTypeDevice || of.type == cudaMemoryTypeManaged;
    return is_gpu ? std::optional(of.device) : std::nullopt;
  }

  std::string name() const {
    cudaDeviceProp properties{};
    expects_success(cudaGetDeviceProperties(&properties, number_), "the GPU's name");
    return properties.name;
  }
  place where() const { return {gpu_name, number_}; }
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

  void* allocate(extent bytes) const {
    const in_use device(number_);
    void* p = nullptr;
    if (bytes == 0) return p;
    expects_success(cudaMalloc(&p, bytes), (std::to_string(bytes) + " bytes of memory").c_str());
    return p;
  }
  void release(void* p) const noexcept { static_cast<void>(cudaFree(p)); }

  void* allocate_pinned(extent bytes) const {
    const in_use device(number_);
    void* p = nullptr;
    if (bytes == 0) return p;
    expects_success(cudaMallocHost(&p, bytes),
                    (std::to_string(bytes) + " bytes of pinned memory").c_str());
    return p;
  }
  void release_pinned(void* p) const noexcept { static_cast<void>(cudaFreeHost(p)); }

  // It waits for the default stream, as the streams of most programs do.
  CUstream_st* new_stream() const {
    const in_use device(number_);
    cudaStream_t stream = nullptr;
    expects_success(cudaStreamCreate(&stream), "a stream");
    return stream;
  }
  void delete_stream(CUstream_st* stream) const noexcept {
    static_cast<void>(cudaStreamDestroy(stream));
  }

  void begin_capture(CUstream_st* stream) const {
    const in_use device(number_);
    expects_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "a capture");
  }
  void* end_capture(CUstream_st* stream) const {
    const in_use device(number_);
    cudaGraph_t captured = nullptr;
    expects_success(cudaStreamEndCapture(stream, &captured), "a capture");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t made = cudaGraphInstantiate(&ready, captured, 0);
    static_cast<void>(cudaGraphDestroy(captured));
    expects_success(made, "a graph");
    return ready;
  }
  void launch(void* graph, CUstream_st* stream) const {
    const in_use device(number_);
    expects_success(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream), "a graph");
  }
  void delete_graph(void* graph) const noexcept {
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)));
  }

  class event {
   public:
    explicit event(const gpu& on) {
      const in_use device(on.number_);
      expects_success(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "an event");
    }
    event(const event&) = delete;
    ~event() { static_cast<void>(cudaEventDestroy(event_)); }

    // While a stream is captured, CUDA takes no question from a thread that does not say that it
    // knows what it asks.
    bool has_passed() const {
      cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
      static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
      const bool has_passed = cudaEventQuery(event_) != cudaErrorNotReady;
      if (!has_passed) static_cast<void>(cudaGetLastError());
      static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
      return has_passed;
    }

   private:
    friend class gpu;
    cudaEvent_t event_ = nullptr;
  };

  // The work of one stream, in order.
  class queue {
   public:
    queue(const gpu& on, CUstream_st* stream)
        : number_(on.number_),
          has_warpgroups_(on.has_warpgroups_),
          stream_(stream) {}

    CUstream_st* stream() const { return stream_; }
    bool has_warpgroups() const { return has_warpgroups_; }

    void copy_in(void* device, const void* host, extent bytes) {
      copy("a copy to the GPU", device, host, bytes, cudaMemcpyHostToDevice);
    }
    void copy_out(void* host, const void* device, extent bytes) {
      copy("a copy from the GPU", host, device, bytes, cudaMemcpyDeviceToHost);
    }
    void wait() {
      constexpr const char* what = "the end of a call";
      const in_use device(number_, what);
      expects_success(cudaStreamSynchronize(stream_), what);
    }
    void wait_on_host(const event& e) {
      constexpr const char* what = "a copy of the host";
      const in_use device(number_, what);
      expects_success(cudaEventSynchronize(e.event_), what);
    }
    // Throws if something before has failed; it waits for nothing.
    void check(const char* what) const {
      const in_use device(number_, what);
      expects_success(cudaGetLastError(), what);
    }

    void record(event& e) {
      const in_use device(number_);
      expects_success(cudaEventRecord(e.event_, stream_), "an event");
    }
    void wait_for(const event& e) {
      const in_use device(number_);
      expects_success(cudaStreamWaitEvent(stream_, e.event_, 0), "a wait for the last call");
    }
    // What another stream has been given comes before what this one is given from now on.
    void wait_for(CUstream_st* other, event& now) {
      const in_use device(number_);
      expects_success(cudaEventRecord(now.event_, other), "an event of an input's stream");
      expects_success(cudaStreamWaitEvent(stream_, now.event_, 0), "a wait for an input");
    }

    // Returns what tells this capture from others, 0 if the stream is not captured.
    unsigned long long capture() const {
      const in_use device(number_);
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      unsigned long long id = 0;
      expects_success(cudaStreamGetCaptureInfo(stream_, &status, &id), "a stream");
      return status == cudaStreamCaptureStatusNone ? 0 : id;
    }

#if defined(FMOE_CUBLASLT)
    // Returns false if cuBLASLt does not take the operands.
    bool multiply(const blas& by, const blas::kernel& k, const blas::product& p) {
      const in_use device(number_, "gemm");
      return by.run(p, k, stream_);
    }
#endif

    template <class Kernel>
    void launch(const char* step, const Kernel& kernel, extent blocks) {
      if (blocks == 0) return;
      const in_use device(number_, step);
      if constexpr (Kernel::shared_bytes > (extent{48} << 10))
        expects_success(
            cudaFuncSetAttribute(run_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(Kernel::shared_bytes)),
            step);
      expects_launch<Kernel>(step, Kernel::threads, Kernel::shared_bytes, blocks);
      run_kernel<Kernel>
          <<<static_cast<unsigned>(blocks), Kernel::threads, Kernel::shared_bytes, stream_>>>(
              kernel);
      expects_success(cudaGetLastError(), step);
    }
    template <class F>
    void each(const char* step, const F& f, extent n) {
      if (n == 0) return;
      const in_use device(number_, step);
      constexpr unsigned few = 64, many_blocks = 256;  // so that few threads are on many SMs
      const unsigned threads = n <= many_blocks * threads_of_each ? few : threads_of_each;
      const extent blocks = divide_up(n, extent{threads});
      expects_launch<F>(step, threads, 0, blocks);
      run_each<<<static_cast<unsigned>(blocks), threads, 0, stream_>>>(f, n);
      expects_success(cudaGetLastError(), step);
    }

   private:
    void copy(const char* what, void* to, const void* from, extent bytes, cudaMemcpyKind kind) {
      const in_use device(number_, what);
      expects_success(cudaMemcpyAsync(to, from, bytes, kind, stream_), what);
    }

    int number_;
    bool has_warpgroups_;
    cudaStream_t stream_;
  };

 private:
  // Makes a GPU that of the thread, and afterwards the program's own again.
  class in_use {
   public:
    explicit in_use(int number, const char* step = "the GPU") {
      expects_success(cudaGetDevice(&before_), step);
      if (before_ != number) expects_success(cudaSetDevice(number), step);
      else before_ = -1;
    }
    in_use(const in_use&) = delete;
    ~in_use() {
      if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
    }

   private:
    int before_ = -1;
  };

  int number_;
  bool has_warpgroups_;
};

}  // namespace fmoe::cuda
