// SPDX-License-Identifier: MIT
// NVIDIA GPUs as a backend. This header needs no CUDA: one translation unit of the program includes
// fmoe/backend/cuda/src.hpp, which nvcc compiles for GPUs, or any other compiler for emulated
// blocks on the CPU. The CMake target fmoe::cuda adds it.
#pragma once

#include <stdexcept>

#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cuda/machines.hpp>

namespace fmoe::cuda {

// The order in which the threads of an emulated block take turns. No result depends on it.
enum class thread_order : std::uint8_t { ascending, descending, shuffled };

// How emulated tensor cores add up. GPUs may cut off what is less than the last digit of the
// greatest term.
enum class tensor_sums : std::uint8_t { rounded, cut_off };

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

// How a GPU is used.
struct device_options {
  fmoe::cuda::math math = math::exact;
  // The bytes of temporaries of a call. As many tokens as fit go through the steps at a time; the
  // bits do not depend on it.
  std::size_t workspace = std::size_t{1} << 30;
  thread_order order = thread_order::ascending;  // of emulated threads
  fmoe::cuda::tensor_sums tensor_sums = fmoe::cuda::tensor_sums::rounded;
};

// CUDA, or the device's memory, fails.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A GPU by its number, for compile_options::on: compile(layer, 128, {.on = fmoe::cuda::device(0)}).
// Where there is no GPU, or where the kernels are compiled without nvcc, it is the emulated device,
// and `explain` says so. Throws value_error if there are GPUs, but not so many.
std::shared_ptr<const backend> device(int number, const device_options& options = {});

// Runs the kernels of a GPU on the CPU, thread by thread, and throws when a kernel does what is
// undefined on a GPU. It is slow.
std::shared_ptr<const backend> emulated(const device_options& options = {});

}  // namespace fmoe::cuda
