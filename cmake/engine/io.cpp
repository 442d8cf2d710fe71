// SPDX-License-Identifier: MIT
// A part of fmoe::fmoe, compiled for the lowest instruction set: files.
#include <fmoe/io/src.hpp>
