// SPDX-License-Identifier: MIT
// Compiled for the lowest instruction set and linked with fmoe::fmoe: prints the level whose
// kernels it takes, and the bits of what they make.
#include <bit>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include <fmoe/tune.hpp>

#include "../two_archs/layer.hpp"

int main() try {
  std::printf("%s", fmoe::this_machine().name.c_str());
  for (const float y : run_layer().y) std::printf(" %" PRIx32, std::bit_cast<std::uint32_t>(y));
  std::puts("");
} catch (const fmoe::value_error& e) {
  std::puts(e.what());
  return 1;
}
