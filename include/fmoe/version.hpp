// SPDX-License-Identifier: MIT
// The release, as numbers that CMake reads from here.
#pragma once

namespace fmoe {

// The numbers of the release, which follow semantic versioning.
struct version {
  static constexpr int major = 0;
  static constexpr int minor = 1;
  static constexpr int patch = 0;
};

}  // namespace fmoe
