// SPDX-License-Identifier: MIT
// Links translation units built for different instruction sets into one program: each must run its
// own kernels. The linker would merge equal symbols silently. Sums without FMA (v2) differ in their
// bits from sums with it (v3, v4), so a merged kernel shows.
//
//   two_archs DISPATCH [QEMU]
//
// DISPATCH is the program of tests/dispatch, which must have the bits of the level that it takes;
// QEMU runs it on CPUs that have no instruction of higher levels.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>

#include "levels.hpp"

namespace {

int failures = 0;

void expect(bool ok, const std::string& what) {
  std::printf("%s: %s\n", ok ? "ok" : "FAILED", what.c_str());
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

// Returns the line that a command prints.
std::string line_of(const std::string& command) {
  std::string line;
  std::FILE* const out = popen(command.c_str(), "r");
  for (int c; out != nullptr && (c = std::fgetc(out)) != EOF && c != '\n';)
    line += static_cast<char>(c);
  if (out != nullptr) pclose(out);
  return line;
}

// The program that chooses its kernels takes those of one level, and has its bits.
void expect_same(const level_result& level, const std::string& command) {
  std::istringstream words(line_of(command));
  level_result here;
  words >> here.architecture >> std::hex;
  for (std::uint32_t bits; words >> bits;) here.y.push_back(std::bit_cast<float>(bits));
  expect(here.architecture == level.architecture, command + ": takes " + here.architecture);
  expect(here.y == level.y, command + ": has the bits of " + level.architecture);
}

void skip(const std::string& what) { std::printf("skipped: %s\n", what.c_str()); }

void expect_line(const std::string& command, const std::string& line) {
  const std::string printed = line_of(command);
  expect(printed == line, command + ": prints \"" + printed.substr(0, line.size() + 1) + '"');
}

// `levels` are those that this machine runs, ascending.
void check_dispatch(const std::vector<level_result>& levels, const std::string& program,
                    const std::string& qemu) {
  for (const level_result& level : levels)
    expect_same(level, "FMOE_LEVEL=" + level.architecture + ' ' + program);
  expect_same(levels.back(), program);
  expect_line("FMOE_LEVEL=v5 " + program,
              "[dispatch] FMOE_LEVEL is v5, and the program holds kernels of x86-64-v2, x86-64-v3, "
              "x86-64-v4");
  if (qemu.empty()) return skip("CPUs of other levels, without qemu-x86_64");
  const std::string old = qemu + " -cpu Nehalem " + program;
  expect_same(levels[0], old);
  expect_line("FMOE_LEVEL=x86-64-v3 " + old,
              "[dispatch] FMOE_LEVEL asks for x86-64-v3, and this CPU runs x86-64-v2 at most");
  if (levels.size() > 1) expect_same(levels[1], qemu + " -cpu Haswell " + program);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<level_result> levels{run_v2()};
  expect(levels[0].architecture == "x86-64-v2", "v2 runs " + levels[0].architecture);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    levels.push_back(run_v3());
    expect(levels[1].architecture == "x86-64-v3", "v3 runs " + levels[1].architecture);
    expect(close(levels[1], levels[0]), "v2 and v3 agree");
    expect(levels[1].y != levels[0].y, "v2 rounds twice where v3 rounds once");
  } else {
    skip("v3, which this CPU does not run");
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) {
    levels.push_back(run_v4());
    expect(levels[2].architecture == "x86-64-v4", "v4 runs " + levels[2].architecture);
    expect(close(levels[2], levels[0]), "v2 and v4 agree");
  } else {
    skip("v4, which this CPU does not run");
  }
  if (argc > 1) check_dispatch(levels, argv[1], argc > 2 ? argv[2] : "");
  return failures;
}
