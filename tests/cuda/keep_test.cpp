// SPDX-License-Identifier: MIT
// K at run time on the other backends.
#include <fmoe/cuda.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/reference.hpp>

#include "../support/keep.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// Layers with fewer experts than a CPU needs for a screen, and of which a step makes all numbers.
mxd<> few_decoders(extent active) { return decoders_of(1024, active); }
peer<> few_retrieved(extent active) { return retrieved_of(20, active); }

TEST_CASE("the reference backend keeps fewer entries, too", "[keep]") {
  check(few_decoders, most, {3}, {.on = reference()});
  check(few_retrieved, most, {5}, {.on = reference()});
  check(autonomous_of, 4, {1, 2}, {.on = reference()});
}

TEST_CASE("a GPU keeps fewer entries, too", "[keep][cuda]") {
  // A plan is screened whatever it costs if its shape is given.
  const compile_options screened{.on = cuda::emulated(), .shape = plan_shape{}};
  CHECK(explain(few_decoders(most)(kept_x), screened).text.find("screened") != std::string::npos);
  check(few_decoders, most, {3}, screened);
  check(few_decoders, most, {3}, {.on = cuda::emulated(), .screen = false});
  check(retrieved, most, {5}, {.on = cuda::emulated()});
  check(autonomous_of, 4, {1, 2}, {.on = cuda::emulated()});
}

}  // namespace
