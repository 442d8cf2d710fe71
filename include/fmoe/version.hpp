// SPDX-License-Identifier: MIT
// The release, which CMake reads from here. It follows semantic versioning.
#pragma once

namespace fmoe {

inline constexpr int version_major = 0;
inline constexpr int version_minor = 1;
inline constexpr int version_patch = 0;

}  // namespace fmoe
