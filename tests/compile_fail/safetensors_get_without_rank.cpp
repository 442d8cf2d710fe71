// SPDX-License-Identifier: MIT
// expect: get: say the number of axes, too, as in get<float, 2>()
// cause: The number of axes is a part of a tensor's type, and a file is read when the program runs.
// cure: `io::npy::read(file).get<float, 2>()`.
#include <fmoe/io/npy.hpp>
#include <fmoe/io/safetensors.hpp>

using namespace fmoe;

int main() {
  io::safetensors::read("x.safetensors").get<float, 2>("x", {all, 8});
  io::npy::read("x.npy").get<float, 2>(io::narrow);
  io::npy::read("x.npy").get<float>(std::array<std::size_t, 2>{4, 8});
#ifdef FMOE_MISUSE
  io::npy::read("x.npy").get<float>();
#endif
}
