// SPDX-License-Identifier: MIT
// What every system does in its own way, but for files (open_file.hpp): pages of memory, sizes of
// caches, what the CPU has. Only platform-inl.hpp calls a system; it knows Linux, macOS and
// Windows.
#pragma once

#include <cstddef>

#include <fmoe/base/language.hpp>
#include <fmoe/base/separate.hpp>

namespace fmoe::detail {

// Memory from this size on may have pages of this size if it is aligned to it; 0 where there are no
// such pages.
#if defined(__linux__)
inline constexpr std::size_t huge_page = std::size_t{2} << 20;
#else
inline constexpr std::size_t huge_page = 0;
#endif
void ask_for_huge_pages(void* p, std::size_t bytes) noexcept;

// Returns the bytes of the cache of level 1, 2 or 3 that holds data, or 0 if nothing tells them.
std::size_t cache_bytes(int level);

#if defined(__aarch64__)
// True if the CPU has the dot products of four integers of 8 bits (SDOT).
bool has_int8_dots();

// True if the CPU has the products of matrices of such integers (SMMLA), and of bf16 numbers
// (BFMMLA).
bool has_int8_matrices();
bool has_bf16_matrices();
#endif

// Asks the system for the registers of AMX, which it gives to programs that ask, and returns
// whether this program has them. The CPU must have them.
bool may_use_tiles();

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/base/platform-inl.hpp>
#endif
