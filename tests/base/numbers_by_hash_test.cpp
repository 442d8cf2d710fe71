// SPDX-License-Identifier: MIT
#include <fmoe/base/numbers_by_hash.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;

TEST_CASE("of the numbers with one hash the first one that fits is found", "[base]") {
  detail::numbers_by_hash numbers;
  const auto any = [](detail::extent) { return true; };
  CHECK(!numbers.find(0, any));
  for (detail::extent k = 0; k < 1000; ++k) {
    numbers.add(k % 7 * 1024);  // hashes that lie far apart and often have one remainder
    for (const detail::extent known : {k / 3, k}) {
      CHECK(numbers.find(known % 7 * 1024, any) == known % 7);
      CHECK(numbers.find(known % 7 * 1024, [&](detail::extent i) { return i == known; }) == known);
      CHECK(!numbers.find(known % 7 * 1024 + 1, any));
    }
  }
  CHECK(!numbers.find(1024, [](detail::extent k) { return k % 7 != 1; }));
}

}  // namespace
