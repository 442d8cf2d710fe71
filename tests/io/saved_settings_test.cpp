// SPDX-License-Identifier: MIT
// What a layer is beside its weights: save writes it, and load reads it or says why it cannot.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/peer.hpp>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

parameter<float, 2> matrix(extent rows, extent columns, unsigned seed) {
  return test::random<tensor<float, 2>>({rows, columns}, seed);
}

template <class Layer>
Layer again(const Layer& layer) {
  const temporary_folder folder;
  save(layer, folder / "layer.safetensors");
  return load<Layer>(folder / "layer.safetensors");
}

// Loads the layer with one key of its metadata changed.
template <class Layer>
Layer with(const Layer& layer, const char* key, const char* text) {
  io::layer_arrays all = io::arrays_of(layer, {}, {});
  all.metadata[key] = text;
  return load<Layer>(io::safetensors::parse(io::safetensors::serialize(all.arrays, all.metadata)));
}

monet_hd<> hd() {
  monet_hd<> layer;
  layer.encoder = matrix(5, 8, 1);
  layer.decoder = matrix(8, 5, 2);
  layer.bias = matrix(4, 5, 3);
  return layer;
}

TEST_CASE("a Monet layer keeps its deleted experts and its heads", "[io]") {
  monet_hd<> layer = hd();
  CHECK(again(layer).deleted.empty());
  CHECK(again(layer).heads == all);
  layer.deleted = {{3, 1}, {0, 2}};
  layer.heads = 2;
  layer.activation = pointwise::relu;
  CHECK(again(layer).deleted == layer.deleted);
  CHECK(again(layer).heads == 2);
  CHECK(again(layer).activation == pointwise::relu);
  const tensor<float, 3> g = test::random<tensor<float, 3>>({6, 2, 4}, 4);
  const auto x = test::random<tensor<float, 2>>({6, 5}, 5);
  const auto y = evaluate(layer(x, g, g)), z = evaluate(again(layer)(x, g, g));
  CHECK(std::ranges::equal(y, z));

  monet_vd<> vertical;
  vertical.encoder1 = vertical.encoder2 = matrix(6, 8, 1);
  vertical.decoder11 = vertical.decoder12 = vertical.decoder21 = vertical.decoder22 =
      matrix(8, 3, 2);
  vertical.bias1 = vertical.bias2 = matrix(4, 3, 3);
  vertical.deleted = {{1, 1}};
  vertical.heads = 3;
  CHECK(again(vertical).deleted == vertical.deleted);
  CHECK(again(vertical).heads == 3);
}

TEST_CASE("a list of pairs that cannot be understood is refused", "[io]") {
  for (const char* text : {"3", "3,", "3,1;", ";", "3,1;x", "3,1x", "-1,2", "3, 1", "03,1",
                           "99999999999999999999,1"}) {
    INFO(text);
    const auto e = caught([&] { with(hd(), "deleted", text); });
    CHECK(e.code == errc::schema);
    CHECK(std::string(e.what()).find("deleted") != std::string::npos);
  }
  CHECK(with(hd(), "deleted", "").deleted.empty());
  CHECK(with(hd(), "deleted", "3,1").deleted == std::vector<index_pair>{{3, 1}});
}

TEST_CASE("a Monet router keeps its heads and its epsilon", "[io]") {
  monet_router<> router;
  router.keys1 = matrix(5, 8, 1);
  router.keys2 = matrix(5, 8, 2);
  CHECK(again(router).heads == 0);
  router.heads = 2;
  router.epsilon = 0.1;
  router.active = 3;
  CHECK(again(router).heads == 2);
  CHECK(again(router).epsilon == 0.1);
  CHECK(again(router).active == 3);
}

TEST_CASE("a PEER layer keeps its candidates and its weights", "[io]") {
  peer<> layer;
  layer.keys = test::random<tensor<float, 4>>({2, 4, 2, 3}, 1);
  layer.down = matrix(16, 6, 2);
  layer.up = matrix(16, 6, 3);
  layer.active = 2;
  CHECK(again(layer).candidates == 0);
  layer.candidates = 3;
  layer.weights = weighting::relu;
  layer.activation = pointwise::silu;
  CHECK(again(layer).candidates == 3);
  CHECK(again(layer).weights == weighting::relu);
  CHECK(again(layer).activation == pointwise::silu);
  layer.weights = weighting::one;
  CHECK(caught([&] { again(layer); }).code == errc::schema);
}

TEST_CASE("a gate keeps any alpha of entmax", "[io]") {
  soft_moe<> mixture{.router = matrix(5, 4, 1),
                     .experts = test::random<tensor<float, 3>>({4, 5, 3}, 2)};
  cp_mumoe<> layer;
  layer.gate.projections[0] = matrix(6, 5, 1);
  layer.experts = {{matrix(5, 4, 2)}, matrix(6, 4, 3), matrix(3, 4, 4)};
  for (const double alpha : {1.0, 1.3, 1.5, 2.0, 1.0 / 3 + 1}) {
    mixture.alpha = layer.gate.alpha = alpha;
    CHECK(again(mixture).alpha == alpha);
    CHECK(again(layer).gate.alpha == alpha);
  }
  CHECK(with(mixture, "phi", "1.25").alpha == 1.25);
  CHECK(caught([&] { with(mixture, "phi", "1.25x"); }).code == errc::schema);
}

TEST_CASE("the kind of another layer is refused", "[io]") {
  const soft_moe<> mixture{.router = matrix(5, 4, 1),
                           .experts = test::random<tensor<float, 3>>({4, 5, 3}, 2)};
  for (const char* kind : {"mxd", "mxd_mlp", "mxd_glu", "transcoder", "skip_transcoder", "sae",
                           "cp", "tr", "tucker"}) {
    const auto e = caught([&] { with(mixture, "kind", kind); });
    CHECK(e.code == errc::conflict);
    CHECK(std::string(e.what()).find("another layer's") != std::string::npos);
    CHECK(caught([&] { with(hd(), "kind", kind); }).code == errc::conflict);
  }
  CHECK(with(mixture, "kind", "dense").alpha == 1);
}

TEST_CASE("a sparse mixer is kept, with its jitter", "[io]") {
  moe<> layer;
  layer.router = matrix(5, 4, 1);
  layer.activated = layer.linear = test::random<tensor<float, 3>>({4, 5, 3}, 2);
  layer.output = test::random<tensor<float, 3>>({4, 3, 5}, 3);
  layer.route.scoring = score_function::sparse_mixer;
  layer.route.weights = weighting::score;
  for (const double jitter : {0.01, 1.0 / 3}) {
    layer.route.jitter = jitter;
    const moe<> loaded = again(layer);
    CHECK(loaded.route.scoring == score_function::sparse_mixer);
    CHECK(loaded.route.weights == weighting::score);
    CHECK(loaded.route.jitter == jitter);
  }
  CHECK(caught([&] { with(layer, "jitter", "0.01x"); }).code == errc::schema);
}

TEST_CASE("k counts beside the settings that a layer names itself", "[io]") {
  moe<> layer;
  layer.router = matrix(5, 4, 1);
  layer.activated = layer.linear = test::random<tensor<float, 3>>({4, 5, 3}, 2);
  layer.output = test::random<tensor<float, 3>>({4, 3, 5}, 3);
  layer.route.active = 3;
  CHECK(with(layer, "k", "3").route.active == 3);
  CHECK(caught([&] { with(layer, "k", "2"); }).code == errc::conflict);
}

}  // namespace
