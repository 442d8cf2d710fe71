// SPDX-License-Identifier: MIT
// A folder of this process, for readers that take paths.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "fuzz.hpp"

namespace fmoe::fuzz {

struct folder {
  folder() { std::filesystem::create_directories(path); }
  ~folder() { std::filesystem::remove_all(path); }
  void write(const char* name, bytes content) const {
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("fmoe-fuzz-" + std::to_string(::getpid()));
};

}  // namespace fmoe::fuzz
