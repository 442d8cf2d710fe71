// SPDX-License-Identifier: MIT
// The entry of a fuzzer: see fuzz.hpp.
#include "fuzz.hpp"

#ifdef FMOE_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fmoe::fuzz::judge(std::as_bytes(std::span(data, size)));
  return 0;
}

#else

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace {

void replay(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> content{std::istreambuf_iterator<char>(in), {}};
  // Its memory ends where it ends, so that the address sanitizer sees reads behind it.
  const auto exact = std::make_unique<char[]>(content.size());
  std::copy(content.begin(), content.end(), exact.get());
  std::printf("%s\n", file.c_str());
  std::fflush(stdout);  // the last line names the input that ends the program
  fmoe::fuzz::judge(std::as_bytes(std::span(exact.get(), content.size())));
}

}  // namespace

// Replays files, and those in folders.
int main(int argc, char** argv) {
  std::size_t replayed = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    if (!std::filesystem::is_directory(argv[i])) files.push_back(argv[i]);
    else
      for (const auto& entry : std::filesystem::directory_iterator(argv[i]))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) replay(file);
    replayed += files.size();
  }
  std::printf("%zu inputs\n", replayed);
  return replayed > 0 ? 0 : 1;
}

#endif
