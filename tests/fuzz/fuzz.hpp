// SPDX-License-Identifier: MIT
// A fuzzer is a file with one function, `judge`, which gets the bytes of an input and ends the
// program where the library breaks a promise. The same file makes two programs: with
// FMOE_LIBFUZZER clang's fuzzer looks for inputs (scripts/fuzz), and without it main replays those
// of a corpus, as a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

namespace fmoe::fuzz {

using bytes = std::span<const std::byte>;

void judge(bytes input);

// Ends the program, with a word about the promise that was broken.
[[noreturn]] inline void broken(const char* promise, const char* found = "") {
  std::fprintf(stderr, "broken promise: %s %s\n", promise, found);
  std::abort();
}
inline void expects(bool holds, const char* promise) {
  if (!holds) broken(promise);
}

// Calls `read`, which may throw one of these errors and nothing else. Returns false if it throws.
template <class... Errors, class Read>
bool only_throws(Read read) {
  try {
    read();
    return true;
  } catch (const std::exception& e) {
    if (!(dynamic_cast<const Errors*>(&e) || ...))
      broken("an exception of another type:", e.what());
    return false;
  }
}

}  // namespace fmoe::fuzz
