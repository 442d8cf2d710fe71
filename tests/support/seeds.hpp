// SPDX-License-Identifier: MIT
// Random tests draw from seeds that a failure prints. FMOE_SEED=n runs one seed again, and
// FMOE_SEEDS=n runs the first n, which is for builds in which a seed takes long.
#pragma once

#include <cstdlib>

namespace fmoe::test {

// Calls check(seed) for the seeds 1 to `usual`, or for those that the environment asks for. Returns
// true if it has called the usual ones at least.
bool for_each_seed(unsigned usual, const auto& check) {
  const auto asked = [](const char* variable) {
    const char* const text = std::getenv(variable);
    return text == nullptr ? 0 : static_cast<unsigned>(std::atoi(text));
  };
  if (const unsigned only = asked("FMOE_SEED")) {
    check(only);
    return false;
  }
  const unsigned first = asked("FMOE_SEEDS");
  const unsigned seeds = first == 0 ? usual : first;
  for (unsigned seed = 1; seed <= seeds; ++seed) check(seed);
  return seeds >= usual;
}

}  // namespace fmoe::test
