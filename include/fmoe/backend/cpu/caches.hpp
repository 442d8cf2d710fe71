// SPDX-License-Identifier: MIT
// The sizes of the caches that one core reads, as the system knows them.
#pragma once

#include <fstream>
#include <string>
#include <utility>

#include <fmoe/base/platform.hpp>
#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// Sets the sizes that the system tells. On AMD's CPUs the L3 of sysconf is the sum over all groups
// of cores.
inline void ask_for_caches(machine& m) {
  std::size_t* const sizes[] = {&m.l1, &m.l2, &m.l3};
  for (int level = 1; level <= 3; ++level)
    if (const std::size_t bytes = cache_bytes(level); bytes != 0) *sizes[level - 1] = bytes;
}

// Sets the sizes that a folder of Linux tells: it has a folder for each cache, with the files
// level, type and size ("32768K"). A cache that it does not tell keeps its size.
inline void read_caches(machine& m, const std::string& folder) {
  for (int i = 0;; ++i) {
    const std::string cache = folder + "/index" + std::to_string(i);
    int level = 0;
    std::size_t kibibytes = 0;
    std::string type;
    if (!(std::ifstream(cache + "/level") >> level)) return;
    std::ifstream(cache + "/type") >> type;
    std::ifstream(cache + "/size") >> kibibytes;
    if (type == "Instruction" || kibibytes == 0) continue;
    for (const auto& [at, bytes] : {std::pair{1, &m.l1}, {2, &m.l2}, {3, &m.l3}})
      if (level == at) *bytes = kibibytes << 10;
  }
}

inline void find_caches(machine& m) {
  ask_for_caches(m);
  read_caches(m, "/sys/devices/system/cpu/cpu0/cache");
}

}  // namespace fmoe::cpu
