// SPDX-License-Identifier: MIT
// K at run time on the other backends.
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/reference.hpp>

#include "../support/keep.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("the other backends keep fewer entries, too", "[keep][cuda]") {
  for (const std::shared_ptr<const backend>& on :
       std::initializer_list<std::shared_ptr<const backend>>{reference(), cuda::emulated()}) {
    check(decoders, most, {3}, {.on = on});
    check(decoders, most, {3}, {.on = on, .screen = false});
    check(retrieved, most, {5}, {.on = on});
    check(autonomous_of, 4, {1, 2}, {.on = on});
  }
}

}  // namespace
