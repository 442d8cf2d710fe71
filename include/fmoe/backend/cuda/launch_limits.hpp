// SPDX-License-Identifier: MIT
// What a launch may ask for. A GPU and emulated blocks refuse the same launches.
#pragma once

#include <string>

#include <fmoe/backend/cuda/device.hpp>
#include <fmoe/base/checked.hpp>

namespace fmoe::cuda {

// Of a block of an A100, which has the least of the GPUs that kernels are compiled for, and of a
// kernel's parameters under any driver.
inline constexpr unsigned most_threads = 1024;
inline constexpr extent most_shared_bytes = extent{163} << 10, most_parameter_bytes = 4096;
inline constexpr extent most_blocks = (extent{1} << 31) - 1;

// Threads of a block in which numbers are made one by one.
inline constexpr unsigned threads_of_each = 256;

// Throws an error that names the step if no GPU takes the launch. It takes what a kernel is made of
// as a template argument, so that parameters which no driver takes do not compile.
template <class Parameters>
void expects_launch(const char* step, unsigned threads, extent shared_bytes, extent blocks) {
  static_assert(sizeof(Parameters) <= most_parameter_bytes &&
                std::is_trivially_copyable_v<Parameters>);
  const auto fails = [&](const char* what) { throw error(std::string("[cuda] ") + step + what); };
  if (blocks > most_blocks) fails(" has more blocks than a GPU takes: give it less workspace");
  if (threads == 0 || threads > most_threads) fails(" has blocks of more threads than a GPU takes");
  if (shared_bytes > most_shared_bytes) fails(" asks for more shared memory than a GPU has");
}

}  // namespace fmoe::cuda
