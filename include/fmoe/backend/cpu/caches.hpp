// SPDX-License-Identifier: MIT
// The sizes of the caches that one core reads, as the system knows them.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include <fmoe/planner/machine.hpp>

namespace fmoe::cpu {

// Sets the sizes that sysconf knows. On AMD's CPUs its L3 is the sum over all groups of cores.
inline void ask_for_caches(machine& m) {
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const auto ask = [](int name, std::size_t& bytes) {
    if (const long known = sysconf(name); known > 0) bytes = static_cast<std::size_t>(known);
  };
  ask(_SC_LEVEL1_DCACHE_SIZE, m.l1);
  ask(_SC_LEVEL2_CACHE_SIZE, m.l2);
  ask(_SC_LEVEL3_CACHE_SIZE, m.l3);
#endif
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
