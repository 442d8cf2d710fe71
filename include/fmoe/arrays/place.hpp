// SPDX-License-Identifier: MIT
// Where the elements of an array lie.
#pragma once

#include <string>
#include <string_view>

namespace fmoe {

// The host's memory, or that of a device, which only the device's backend reads and writes. Each
// backend names its devices.
struct place {
  const char* device = nullptr;  // null for the host; otherwise it outlives the program's arrays
  int number = 0;

  bool is_host() const { return device == nullptr; }
  bool operator==(const place& other) const {
    if (is_host() || other.is_host()) return is_host() && other.is_host();
    return number == other.number && std::string_view(device) == other.device;
  }

  // "the host" or, say, "GPU 1".
  operator std::string() const {
    return is_host() ? "the host" : device + (' ' + std::to_string(number));
  }
};

}  // namespace fmoe
