// SPDX-License-Identifier: MIT
// NVIDIA GPUs as a backend. This header needs no CUDA: one translation unit of the program includes
// fmoe/backend/cuda/src.hpp, which nvcc compiles for GPUs, or any other compiler for emulated
// blocks on the CPU. The CMake target fmoe::cuda adds it.
#pragma once

#include <stdexcept>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cuda/machines.hpp>

struct CUstream_st;  // what a cudaStream_t points to

namespace fmoe {

template <>
inline constexpr bool is_stream<CUstream_st> = true;

}  // namespace fmoe

namespace fmoe::cuda {

// The names of devices in `place`.
inline constexpr const char *gpu_name = "GPU", *emulated_name = "emulated GPU";

// The order in which the threads of an emulated block take turns. No result depends on it.
enum class thread_order : std::uint8_t { ascending, descending, shuffled };

// How emulated tensor cores add up. GPUs may cut off what is less than the last digit of the
// greatest term. `worst` takes nearly a whole last digit from each term, which no GPU is known to
// do: it is the most that the bound of screened selections allows.
enum class tensor_sums : std::uint8_t { rounded, cut_off, worst };

// The arithmetic of products of floats; all add up in fp32. What ranks experts is never rounded to
// tf32 or bf16. Products of doubles are always exact.
enum class math : std::uint8_t {
  exact,   // the CPU's bits
  fp32,    // float, by cuBLASLt if the build has it: bits may depend on the number of rows
  tf32x3,  // float, each number as a sum of two tf32 numbers: nearly as precise, on tensor cores
  tf32,    // numbers are rounded to 11 bits
  bf16,    // numbers are rounded to 8 bits
};

// How `explain` calls it.
constexpr const char* name_of(math how) {
  switch (how) {
    case math::exact: return "exact";
    case math::fp32: return "fp32";
    case math::tf32x3: return "tf32x3";
    case math::tf32: return "tf32";
    case math::bf16: return "bf16";
  }
  return "";
}

// When an emulated stream does its work: at once, or when somebody waits for it, in turn with the
// other streams. No result depends on it. Or never, so that what remains is the host's part of a
// call.
enum class stream_order : std::uint8_t { at_once, deferred, never };

// How a GPU is used.
struct device_options {
  fmoe::cuda::math math = math::exact;
  // The bytes of temporaries of a call. As many tokens as fit go through the steps at a time; the
  // bits do not depend on it.
  std::size_t workspace = std::size_t{1} << 30;
  // The bytes of a whole layer: its weights, and for each caller temporaries and staged arrays of
  // the host. As many tokens go through the steps at a time as it takes.
  std::size_t memory = all;

  // Of emulated devices:
  thread_order order = thread_order::ascending;
  stream_order streams = stream_order::at_once;
  int emulated_devices = 1;
  std::size_t device_memory = all;  // the bytes that the device has
  fmoe::cuda::tensor_sums tensor_sums = fmoe::cuda::tensor_sums::rounded;
};

// CUDA, or the device's memory, fails. The message names the step; a step that fails while the
// program goes on is named by what next looks for errors.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A GPU, or an emulated one: a backend that has memory and streams.
class processor : public backend {
 public:
  virtual place where() const = 0;

  // Memory of the device. Throws an error if there is not enough.
  virtual void* allocate(std::size_t bytes) const = 0;
  virtual void release(void* memory) const noexcept = 0;

  // Copies between the host and the device, when `on` has done what was put on it before, and
  // returns when they are done.
  virtual void copy_in(void* device, const void* host, std::size_t bytes,
                       CUstream_st* on = nullptr) const = 0;
  virtual void copy_out(void* host, const void* device, std::size_t bytes,
                        CUstream_st* on = nullptr) const = 0;

  virtual CUstream_st* new_stream() const = 0;
  virtual void delete_stream(CUstream_st* stream) const noexcept = 0;
  // Returns when the stream has done its work. Throws an error if a step of it failed.
  virtual void synchronize(CUstream_st* stream = nullptr) const = 0;

  // What is put on a stream between these two becomes a graph.
  virtual void begin_capture(CUstream_st* stream) const = 0;
  virtual void* end_capture(CUstream_st* stream) const = 0;
  virtual void launch(void* graph, CUstream_st* stream) const = 0;
  virtual void delete_graph(void* graph) const noexcept = 0;
};

// A GPU by its number, for compile_options::on: compile(layer, 128, {.on = fmoe::cuda::device(0)}).
// Throws value_error if there are not so many: none where the kernels are compiled without nvcc.
std::shared_ptr<const processor> device(int number, const device_options& options = {});

// Runs the kernels of a GPU on the CPU, thread by thread, and throws when a kernel does what is
// undefined on a GPU. It is slow. Throws value_error if `number` is not below emulated_devices.
std::shared_ptr<const processor> emulated(const device_options& options = {}, int number = 0);

// The first GPU, or an emulated device where there is none. `explain` says which it is.
std::shared_ptr<const processor> gpu_or_emulated(const device_options& options = {});

// Returns the place of a GPU, or where there is none of an emulated device, and the place to whose
// memory a pointer belongs. Throws value_error if it is no device's.
place place_of_device(int number);
place place_of(const void* pointer);

// A stream of one's own, for forward.on(stream)(x, y). It works beside other streams.
class stream {
 public:
  explicit stream(std::shared_ptr<const processor> on)
      : on_(std::move(on)),
        handle_(on_->new_stream()) {}
  stream(const stream&) = delete;
  ~stream() { on_->delete_stream(handle_); }

  CUstream_st* handle() const { return handle_; }
  void synchronize() const { on_->synchronize(handle_); }

 private:
  std::shared_ptr<const processor> on_;
  CUstream_st* handle_;
};

// Calls that CUDA keeps and starts all at once: graph g(gpu, s, [&] { forward.on(s)(x, y); }), and
// then g.launch(s), as often as y is wanted of what x holds by then. Layers and arrays outlive it.
class graph {
 public:
  template <class Calls>
  graph(std::shared_ptr<const processor> on, const stream& s, Calls&& calls) : on_(std::move(on)) {
    on_->begin_capture(s.handle());
    try {
      calls();
    } catch (...) {
      try {
        on_->delete_graph(on_->end_capture(s.handle()));
      } catch (const error&) {  // the capture failed because of what is thrown on
      }
      throw;
    }
    graph_ = on_->end_capture(s.handle());
  }
  graph(const graph&) = delete;
  ~graph() { on_->delete_graph(graph_); }

  void launch(const stream& s) const { on_->launch(graph_, s.handle()); }

 private:
  std::shared_ptr<const processor> on_;
  void* graph_;
};

}  // namespace fmoe::cuda
