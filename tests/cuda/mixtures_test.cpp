// SPDX-License-Identifier: MIT
// Parts of released mixtures that no layer of another test has: experts of a latent, zero experts
// and limits of hidden units have the outputs of transformers on a GPU, too.
#include <filesystem>

#include <fmoe/cuda.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_mixture.hpp>

#include "../support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

TEST_CASE("mixtures of released models have the outputs of transformers on a GPU", "[cuda]") {
  const std::filesystem::path home = "tests/mixtures";
  for (const std::string name :
       {"step3p5_limits", "glm5_next", "minimax_m3", "nemotron_h_latent", "longcat_flash"}) {
    INFO(name);
    const auto want = io::safetensors::read(home / (name + ".io.safetensors"));
    const auto x = want.get<float, 2>("x", {all, all});
    const auto expected = want.get<double, 2>("y64", {all, all});
    const auto y = evaluate(load_mixture(home / name, 1)(x), {.on = cuda::gpu_or_emulated()});
    CHECK(relative_error(y.data(), {expected.data(), expected.data() + expected.size()}) < 2e-6);
  }
}

}  // namespace
