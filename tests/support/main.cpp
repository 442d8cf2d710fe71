// SPDX-License-Identifier: MIT
// main() of the test programs, with Catch2 2 and 3. It returns 0 if all cases passed, 77 if none
// failed and one of them called skip_case, and another number otherwise. It fails, too, if no case
// has the names or tags that it was asked for.
#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

#include <cstdio>
#include <set>

#include "skip.hpp"

namespace {

constexpr int failure = 1, skipped = 77;  // SKIP_RETURN_CODE of ctest

std::set<std::string>& reasons() {
  static std::set<std::string> found;
  return found;
}

}  // namespace

void fmoe::test::skip_case(const std::string& reason) { reasons().insert(reason); }

int main(int argc, char** argv) {
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv)) return wrong;
#ifdef CATCH_CONFIG_RUNNER  // Catch2 3 does so by itself
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoTests);
#endif
  if (session.run() != 0) return failure;  // not Catch2's number of failures, which may be 77
  for (const std::string& reason : reasons()) std::printf("skipped: %s\n", reason.c_str());
  return reasons().empty() ? 0 : skipped;
}
