// SPDX-License-Identifier: MIT
// The description of a tensor in a safetensors header, and a check that the descriptions of all
// tensors agree.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <fmoe/io/element_type.hpp>

namespace fmoe::io {

struct tensor_entry {
  std::string name;
  element_type type{};
  std::vector<extent> shape;
  std::array<std::uint64_t, 2> range{};  // bytes of the data section; the second one is the end
  std::uint64_t at = 0;                  // byte of the file where the name stands
};

}  // namespace fmoe::io
