// SPDX-License-Identifier: MIT
// CMake compiles a precompiled header for a target, and a target has a source.
