// SPDX-License-Identifier: MIT
// Loads AoE and mixtures from files: axes of two labels, two sets of names, and the routing in the
// metadata.
#include <fmoe/aoe.hpp>
#include <fmoe/io/safetensors.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using test::random;

constexpr extent d = 5, n = 3, l = 2, w = 4;

aoe<float> layer_of() {
  aoe<float> layer;
  layer.down = random<parameter<float, 3>>({d, n, l}, 1);
  layer.up = random<parameter<float, 3>>({n, l, w}, 2);
  layer.linear = random<parameter<float, 3>>({n, d, w}, 3);
  layer.output = random<parameter<float, 3>>({n, w, d}, 4);
  layer.route.active = 3;
  layer.route.weights = weighting::softmax_of_all;
  layer.score = row_norm::max;
  layer.activation = pointwise::gelu_tanh;
  return layer;
}

bool same(const auto& a, const auto& b) {
  return a.shape() == b.shape() && std::equal(a.data(), a.data() + a.size(), b.data());
}

// The names and the order of the released code: rows i w .. belong to expert i.
void write_released(const std::filesystem::path& file, const aoe<float>& layer) {
  tensor<float, 2> down({d, n * l}, std::span<const float>(layer.down.data(), layer.down.size())),
      up({n * w, l}), linear({n * w, d}),
      output({n * w, d}, std::span<const float>(layer.output.data(), layer.output.size()));
  for (extent e = 0; e < n; ++e)
    for (extent k = 0; k < w; ++k) {
      for (extent i = 0; i < l; ++i) up(e * w + k, i) = layer.up(e, i, k);
      for (extent i = 0; i < d; ++i) linear(e * w + k, i) = layer.linear(e, i, k);
    }
  io::safetensors::write(file,
                         {{"wg", down},
                          {"experts.mlp.wup", up},
                          {"experts.mlp.v1", linear},
                          {"experts.mlp.w2", output}},
                         {{"K", "1"}});
}

TEST_CASE("what is saved is loaded again, routing and all", "[io][moe]") {
  const temporary_folder folder;
  const auto layer = layer_of();
  save(layer, folder / "aoe.safetensors");
  const auto again = load<aoe<float>>(folder / "aoe.safetensors");
  CHECK((same(again.down, layer.down) && same(again.up, layer.up) &&
         same(again.linear, layer.linear) && same(again.output, layer.output)));
  CHECK(again.route.active == 3);
  CHECK(again.route.capacity == all);
  CHECK(again.route.weights == weighting::softmax_of_all);
  CHECK(again.score == row_norm::max);
  CHECK(again.activation == pointwise::gelu_tanh);
  const auto file = io::safetensors::read(folder / "aoe.safetensors");
  CHECK(file.metadata().at("capacity") == "-1");
  CHECK(file.find("W_down")->shape() == std::vector<extent>{d, n * l});
  CHECK(file.find("wg") == nullptr);
}

TEST_CASE("released names split their axes by what the others tell", "[io][moe]") {
  const temporary_folder folder;
  const auto layer = layer_of();
  write_released(folder / "aoe.safetensors", layer);
  const load_options told{.activation = pointwise::gelu_tanh,
                          .metadata = {{"weighting", "released"}}};
  const auto again = load<aoe<float>>(folder / "aoe.safetensors", told);
  CHECK((same(again.down, layer.down) && same(again.up, layer.up) &&
         same(again.linear, layer.linear) && same(again.output, layer.output)));
  CHECK(again.route.active == 1);
  CHECK(again.activation == pointwise::gelu_tanh);
  CHECK(again.route.weights == weighting::softmax_of_all);
  load_options with_k = told;
  with_k.active = 1;
  CHECK(load<aoe<float>>(folder / "aoe.safetensors", with_k).route.active == 1);
  with_k.active = 2;
  CHECK_THROWS_AS(load<aoe<float>>(folder / "aoe.safetensors", with_k), io::error);
  // The released code has defaults of its own for these two.
  for (const char* key : {"activation", "weighting"}) {
    load_options less = told;
    if (less.metadata.erase(key) == 0) less.activation.reset();
    const io::error e = caught([&] { load<aoe<float>>(folder / "aoe.safetensors", less); });
    CHECK(e.code == io::errc::missing_setting);
    CHECK(std::string(e.what()).find(key) != std::string::npos);
  }
}

TEST_CASE("axes that do not split, and missing halves of two sets of names, are typed errors",
          "[io][moe]") {
  const temporary_folder folder;
  const tensor<float, 2> down({d, 7});
  io::safetensors::write(folder / "a.safetensors",
                         {{"W_down", down},
                          {"W_up", layer_of().up},
                          {"W_p", layer_of().linear},
                          {"W_o", layer_of().output}},
                         {});
  CHECK_THROWS_AS(load<aoe<float>>(folder / "a.safetensors"), io::error);
  io::safetensors::write(
      folder / "b.safetensors",
      {{"W_up", layer_of().up}, {"W_p", layer_of().linear}, {"W_o", layer_of().output}}, {});
  CHECK_THROWS_AS(load<aoe<float>>(folder / "b.safetensors"), io::error);
}

}  // namespace
