// SPDX-License-Identifier: MIT
// expect: gguf: a value is a bool, an integer, a float, a double or a std::string, or a std::vector of these
// cause: The metadata of GGUF files have values of these kinds alone.
// cure: `file.value<std::string>(key)`.
#include <fmoe/io/gguf.hpp>

using namespace fmoe;

int main() {
  const auto file = io::gguf::read("model.gguf");
  file.value<std::string>("general.name");
#ifdef FMOE_MISUSE
  file.value<const char*>("general.name");
#endif
}
