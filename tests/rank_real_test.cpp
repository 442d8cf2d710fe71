// SPDX-License-Identifier: MIT
// The rank of an expert of a real model's replacement. ../shared/real is not part of the project;
// without it the test is skipped.
#include <fmoe/rank.hpp>

#include <fmoe/io/safetensors.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"
#include "support/skip.hpp"
#include "support/svd.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("experts of a trained MxD have nearly full rank", "[rank]") {
  const std::string file = "../shared/real/minilm_l3_mxd.safetensors";
  if (!std::filesystem::exists(file)) return skip_case("there is no " + file);
  const auto layer = load<mxd<>>(file);
  CHECK(normalised_rank(evaluate(layer.expert(1))) > 0.99);
}

}  // namespace
