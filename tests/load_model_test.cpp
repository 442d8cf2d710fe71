// SPDX-License-Identifier: MIT
// Loads the layer of a file without saying its kind, and compares it with the layer itself.
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_model.hpp>

#include "support/agree.hpp"
#include "support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

parameter<float, 2> matrix(extent rows, extent columns, unsigned seed) {
  return random<tensor<float, 2>>({rows, columns}, seed);
}

mxd<> small_mxd() {
  mxd<> layer;
  layer.encoder = matrix(6, 8, 1);
  layer.gate = matrix(6, 40, 2);
  layer.scales = matrix(40, 6, 3);
  layer.decoder = matrix(8, 6, 4);
  layer.active = 3;
  return layer;
}
soft_moe<> small_mixture() {
  return {.router = matrix(6, 4, 1), .experts = random<tensor<float, 3>>({4, 6, 3}, 2)};
}
monet_hd<> small_monet() {
  monet_hd<> layer;
  layer.encoder = matrix(6, 8, 1);
  layer.decoder = matrix(8, 6, 2);
  layer.bias = matrix(4, 6, 3);
  return layer;
}

// The arrays of these layers in one file.
class joined {
 public:
  joined& with(const auto& layer, const std::string& prefix) {
    for (auto& [name, a] : io::arrays_of(layer, {}, {.prefix = prefix}).arrays)
      arrays_.emplace(name, a);
    return *this;
  }
  io::checkpoint in(const temporary_folder& folder,
                    const io::strings_by_name& metadata = {{"K", "2"},
                                                           {"activation", "squared_relu"}}) const {
    io::safetensors::write(folder / "model.safetensors", arrays_, metadata);
    return io::checkpoint::open(folder.path());
  }

 private:
  io::arrays_by_name arrays_;
};

TEST_CASE("a file's layer of any kind runs", "[load_model]") {
  const temporary_folder folder;
  const auto file = folder / "layer.safetensors";
  const auto x = matrix(5, 6, 9);
  const auto same = [&](const auto& layer) {
    save(layer, file);
    const model loaded = load_model(file, 5);
    return loaded.tokens() == 5 && std::ranges::equal(loaded(x), compile(layer, 5)(x));
  };
  CHECK(same(small_mxd()));
  CHECK(same(small_mixture()));
  cp_mumoe<2> deep;
  deep.gate.projections = {matrix(6, 5, 1), matrix(6, 3, 2)};
  deep.experts = {{matrix(5, 4, 3), matrix(3, 4, 4)}, matrix(6, 4, 5), matrix(3, 4, 6)};
  CHECK(same(deep));
}

TEST_CASE("a Monet layer runs with its own router, and with no other one", "[load_model]") {
  const auto loaded = [](const io::checkpoint& from, const load_options& options) {
    return load_model<monet_hd<>, monet_vd<>>(from, 5, options);
  };
  const temporary_folder folder;
  monet_router<> router;
  router.keys1 = matrix(6, 8, 4);
  router.keys2 = matrix(6, 8, 5);
  router.heads = 2;
  auto other = router;
  other.keys1 = matrix(6, 8, 6);
  joined files;
  files.with(router, "layers.0.").with(small_monet(), "layers.0.").with(small_monet(), "layers.3.");
  files.with(other, "layers.4.").with(small_monet(), "layers.4.").with(small_monet(), "layers.10.");
  const auto from = files.in(folder, {{"K", "2"}, {"heads", "2"}, {"activation", "squared_relu"}});
  const auto x = matrix(5, 6, 9);
  const auto expected = [&](monet_router<> r) {
    r.active = 2;
    return evaluate(small_monet()(x, r.g1(x), r.g2(x)));
  };
  const auto close = [&](const char* prefix, const monet_router<>& r) {
    const auto y = loaded(from, {.prefix = prefix})(x), z = expected(r);
    for (extent i = 0; i < y.size(); ++i)
      if (std::abs(y.data()[i] - z.data()[i]) > 1e-5f) return false;
    return true;
  };
  CHECK(close("layers.0.", router));
  CHECK(close("layers.4.", other));

  const auto refused = [&](const io::checkpoint& model, const char* prefix) {
    const auto e = caught([&] { loaded(model, {.prefix = prefix}); });
    CHECK(e.code == errc::missing_tensor);
    CHECK(std::string(e.what()).find("takes the routing of the first layer of its group") !=
          std::string::npos);
    return e.tensor;
  };
  CHECK(refused(from, "layers.3.") == "layers.3.router.w1.weight");
  CHECK(refused(from, "layers.10.") == "layers.10.router.w1.weight");
  const temporary_folder alone;
  CHECK(refused(joined().with(small_monet(), "").in(alone), "") == "router.w1.weight");
}

TEST_CASE("a file without one layer says what it holds", "[load_model]") {
  const auto loaded = [](const io::checkpoint& from, const load_options& options = {}) {
    return load_model<mxd<>, soft_moe<>>(from, 5, options);
  };
  const temporary_folder folder;
  const auto two = joined().with(small_mxd(), "a.").with(small_mixture(), "b.c.").in(folder);
  auto e = caught([&] { loaded(two); });
  CHECK(e.code == errc::conflict);
  CHECK(std::string(e.what()).find("holds 2 layers, behind \"a.\", \"b.c.\"") != std::string::npos);
  CHECK(loaded(two, {.prefix = "a."}).outputs() == 6);
  CHECK(loaded(two, {.prefix = "b."}).outputs() == 3);
  e = caught([&] { loaded(two, {.prefix = "d."}); });
  CHECK(e.code == errc::missing_tensor);

  io::arrays_by_name arrays = io::arrays_of(small_mxd(), {}, {}).arrays;
  arrays.erase("W_cond");
  io::safetensors::write(folder / "less.safetensors", arrays);
  e = caught([&] { load_model<mxd<>, soft_moe<>>(folder / "less.safetensors", 5); });
  CHECK(e.code == errc::missing_tensor);
  CHECK(std::string(e.what()).find("tensor \"W_cond\" is missing") != std::string::npos);
  CHECK(e.file == folder / "less.safetensors");
}

}  // namespace
