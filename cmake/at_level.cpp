// SPDX-License-Identifier: MIT
// at_level                     prints the highest x86-64 level that this machine runs: v1 to v4
// at_level LEVEL PROGRAM ARGS  runs the program, or exits with 77 if the machine cannot;
// ctest shows this as skipped
//
// The test itself cannot ask, because code before its main() already uses the instructions of the
// level.
#include <unistd.h>

#include <cstdio>
#include <string_view>

static int level() {
  // The features that distinguish the levels; clang before 18 does not know the names of the
  // levels.
#define has(feature) (__builtin_cpu_supports(feature) != 0)
  if (!(has("ssse3") && has("sse4.1") && has("sse4.2") && has("popcnt"))) return 1;
  if (!(has("avx") && has("avx2") && has("bmi") && has("bmi2") && has("fma"))) return 2;
  if (!(has("avx512f") && has("avx512bw") && has("avx512cd") && has("avx512dq") && has("avx512vl")))
    return 3;
  return 4;
}

int main(int argc, char** argv) {
  if (argc < 3) return std::printf("v%d\n", level()) < 0;
  const std::string_view wanted = argv[1];
  if (wanted.size() != 2 || wanted[0] != 'v' || wanted[1] < '1' || wanted[1] > '4') {
    std::fprintf(stderr, "at_level: '%s' is not one of v1, v2, v3, v4\n", argv[1]);
    return 2;
  }
  if (wanted[1] - '0' > level()) {
    std::printf("skipped: this machine runs x86-64-v%d and the test is built for x86-64-%s\n",
                level(), argv[1]);
    return 77;
  }
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  return 1;
}
