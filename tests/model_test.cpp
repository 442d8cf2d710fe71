// SPDX-License-Identifier: MIT
// Layers of different types in one list.
#include <fmoe/aoe.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/model.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mxd.hpp>

#include <functional>

#include "support/agree.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

std::string golden(const std::string& name) {
  return "tests/golden/" + name + ".weights.safetensors";
}

TEST_CASE("models of different layers are called alike", "[model]") {
  const auto mixture =
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu});
  const auto experts = load<aoe<>>(
      golden("aoe/aoe_kn"),
      {.active = 2, .activation = pointwise::silu, .metadata = {{"weighting", "paper"}}});
  auto router = load<monet_router<>>(golden("monet/monet_hd_topk_t1"), {.active = 3});
  router.heads = 3;
  auto composed =
      load<monet_hd<>>(golden("monet/monet_hd_topk_t1"), {.activation = pointwise::gelu});
  composed.heads = 3;
  const auto monet = [=](const auto& x) { return composed(x, router.g1(x), router.g2(x)); };

  const std::vector<model> layers{model(mixture, 9), model(experts, 9), model(monet, 9),
                                  model(compile(mixture, 9))};
  const auto check = [](const model& m, const auto& layer) {
    const auto x = random<tensor<float, 2>>({7, m.inputs()}, 1);
    const auto expected = evaluate(layer(x));
    CHECK(m.tokens() == 9);
    CHECK(m.outputs() == expected.shape()[1]);
    const auto y = m(x);
    CHECK(std::ranges::equal(y, expected));
    tensor<float, 2> in_place(y.shape());
    m(x, in_place);
    CHECK(std::ranges::equal(in_place, expected));
  };
  check(layers[0], mixture);
  check(layers[1], experts);
  check(layers[2], monet);
  check(layers[3], mixture);

  const std::function<tensor<float, 2>(const tensor<float, 2>&)> forward = layers[0];
  CHECK(forward(tensor<float, 2>({2, layers[0].inputs()})).shape()[0] == 2);
}

TEST_CASE("copies of a model share the compiled layer", "[model]") {
  auto layer =
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu});
  model first(layer, 3), other(layer, 3);
  const model copy = first;
  const auto x = random<tensor<float, 2>>({3, first.inputs()}, 1);
  layer.decoder(0, 0) += 100;
  CHECK_THROWS_AS(copy(x), value_error);
  first.refresh();
  CHECK(std::ranges::equal(copy(x), evaluate(layer(x))));
  other = copy;
  CHECK(std::ranges::equal(other(x), evaluate(layer(x))));
}

}  // namespace
