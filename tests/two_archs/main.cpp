// SPDX-License-Identifier: MIT
// Links translation units built for different instruction sets into one program: each must run its
// own kernels. The linker would merge equal symbols silently. Sums without FMA (v2) differ in their
// bits from sums with it (v3, v4), so a merged kernel shows.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "levels.hpp"

namespace {

int failures = 0;

void expect(bool ok, const char* what) {
  std::printf("%s: %s\n", ok ? "ok" : "FAILED", what);
  failures += !ok;
}

bool close(const level_result& a, const level_result& b) {
  float error = 0, norm = 0;
  for (std::size_t i = 0; i < a.y.size(); ++i) {
    error = std::max(error, std::abs(a.y[i] - b.y[i]));
    norm = std::max(norm, std::abs(b.y[i]));
  }
  return a.y.size() == b.y.size() && norm > 0 && error < 1e-5f * norm;
}

}  // namespace

int main() {
  const level_result v2 = run_v2();
  expect(v2.architecture.find("v2") != std::string::npos, ("v2 runs " + v2.architecture).c_str());
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return failures;
  const level_result v3 = run_v3();
  expect(v3.architecture.find("v3") != std::string::npos, ("v3 runs " + v3.architecture).c_str());
  expect(close(v3, v2), "v2 and v3 agree");
  expect(v3.y != v2.y, "v2 rounds twice where v3 rounds once");
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return failures;
  const level_result v4 = run_v4();
  expect(v4.architecture.find("v4") != std::string::npos, ("v4 runs " + v4.architecture).c_str());
  expect(close(v4, v2), "v2 and v4 agree");
  return failures;
}
