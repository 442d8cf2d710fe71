// SPDX-License-Identifier: MIT
// expect: io: the file is a temporary, and its metadata end with it
// cause: `values()` refers to the object that read returned, which nothing keeps.
// cure: Keep what read returns in a variable.
#include <fmoe/io/gguf.hpp>

using namespace fmoe;

int main() {
  const auto file = io::gguf::read("model.gguf");
  for (const auto& [key, value] : file.values()) value.text();
#ifdef FMOE_MISUSE
  for (const auto& [key, value] : io::gguf::read("model.gguf").values()) value.text();
#endif
}
