// SPDX-License-Identifier: MIT
// Finds the layers that a checkpoint holds, and compares layers in outline with the loaded ones.
#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>

#include <cstdint>
#include <optional>

#include "../support/catch.hpp"
#include "../support/files.hpp"
#include "../support/oracle.hpp"

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

namespace {

io::array numbers(std::vector<extent> shape) {
  auto flat = test::random<tensor<float, 1>>({element_count(shape)},
                                             static_cast<unsigned>(element_count(shape)));
  for (extent i = 0; i < flat.size(); ++i) flat(i) = std::abs(flat(i));  // some are variances
  return io::array(flat).reshaped(std::move(shape));
}

void add_mxd(io::arrays_by_name& to, const std::string& prefix) {
  constexpr extent i = 6, h = 8, n = 40, o = 5;
  to.emplace(prefix + "W_enc", numbers({i, h}));
  to.emplace(prefix + "b_enc", numbers({h}));
  to.emplace(prefix + "gate", numbers({n, i}));
  to.emplace(prefix + "W_cond", numbers({o, n}));
  to.emplace(prefix + "W_dec", numbers({h, o}));
}
void add_monet(io::arrays_by_name& to, const std::string& prefix) {
  to.emplace(prefix + "moe.u.weight", numbers({6, 4}));
  to.emplace(prefix + "moe.v.weight", numbers({4, 6}));
  to.emplace(prefix + "moe.b", numbers({3, 4}));
}

// "prefix:type number of tensors" of each layer.
template <class... Layers>
std::vector<std::string> found(const io::checkpoint& from) {
  std::vector<std::string> result;
  for (const auto& l : io::layers_in<Layers...>(from))
    result.push_back(l.prefix + ':' + std::to_string(l.type) + ' ' +
                     std::to_string(l.names.size()));
  return result;
}
using texts = std::vector<std::string>;

io::checkpoint written(const temporary_folder& folder, const io::arrays_by_name& arrays,
                       const io::strings_by_name& metadata = {}) {
  io::safetensors::write(folder / "model.safetensors", arrays, metadata);
  return io::checkpoint::open(folder.path());
}

TEST_CASE("layers are found by prefix, in the order of their numbers", "[io]") {
  const temporary_folder folder;
  io::arrays_by_name all;
  for (const char* prefix : {"layers.10.", "layers.2.", "layers.9.mlp.", ""}) add_mxd(all, prefix);
  add_monet(all, "layers.2.");
  all.emplace("layers.2.router.w1.weight", numbers({6, 4}));
  all.emplace("layers.2.router.w2.weight", numbers({6, 4}));
  all.emplace("embedding", numbers({2, 2}));
  all.emplace("my_W_enc", numbers({2, 2}));  // after a dot this is no name of a layer
  const auto from = written(folder, all);
  CHECK(found<mxd<>, monet_hd<>, monet_router<>>(from) ==
        texts{":0 5", "layers.2.:0 5", "layers.2.:1 3", "layers.2.:2 2", "layers.9.mlp.:0 5",
              "layers.10.:0 5"});
  CHECK(found<monet_vd<>, soft_moe<>>(from).empty());
  CHECK(found<>(from).empty());
  const auto names = io::layers_in<monet_router<>>(from).at(0).names;
  CHECK(names == texts{"layers.2.router.w1.weight", "layers.2.router.w2.weight"});
}

TEST_CASE("what is not whole or does not fit is no layer", "[io]") {
  const auto count = [](const char* change, std::optional<io::array> to) {
    const temporary_folder folder;
    io::arrays_by_name arrays;
    add_mxd(arrays, "");
    arrays.erase(change);
    if (to) arrays.emplace(change, *to);
    return io::layers_in<mxd<>>(written(folder, arrays)).size();
  };
  const std::vector<std::int32_t> integers(8);
  CHECK(count("none", {}) == 1);
  CHECK(count("b_enc", {}) == 1);
  CHECK(count("W_dec", {}) == 0);
  CHECK(count("W_dec", numbers({9, 5})) == 0);
  CHECK(count("W_dec", numbers({8, 5, 1})) == 0);
  CHECK(count("b_enc", io::array({8}, std::span<const std::int32_t>(integers))) == 0);
}

io::arrays_by_name aoe_arrays() {
  return {{"W_down", numbers({4, 6})},
          {"W_up", numbers({3, 2, 5})},
          {"W_p", numbers({3, 4, 5})},
          {"W_o", numbers({3, 5, 4})}};
}

TEST_CASE("the nearest layer and its fault tell why there is none", "[io]") {
  const auto nearest = [](const char* change, const char* name, std::optional<io::array> to) {
    const temporary_folder folder;
    auto arrays = aoe_arrays();
    arrays.erase(change);
    if (to) arrays.emplace(name, *to);
    const auto from = written(folder, arrays);
    CHECK(io::layers_in<mxd<>, moe<>, aoe<>, soft_moe<>>(from).empty());
    const auto near = io::nearest_layer<mxd<>, moe<>, aoe<>, soft_moe<>>(from);
    REQUIRE(near.has_value());
    CHECK(near->prefix.empty());
    CHECK(near->type == 2);
    return near->fault;
  };
  const std::vector<std::int32_t> integers(60);
  const auto says = [](const std::string& fault, const char* text) {
    INFO(fault);
    CHECK(fault.find(text) != fault.npos);
  };
  says(nearest("W_o", "", {}), "tensor \"experts.mlp.w2\" is missing, and so is \"W_o\"");
  says(nearest("W_o", "Wo", numbers({3, 5, 4})), "\"Wo\" (missing_tensor)");
  says(nearest("W_o", "W_o", numbers({3, 4, 5})), "tensor \"W_o\" is [3, 4, 5] and [3, 5, 4]");
  says(nearest("W_p", "W_p", io::array({3, 4, 5}, std::span<const std::int32_t>(integers))),
       "tensor \"W_p\" is I32");

  const temporary_folder folder;
  io::arrays_by_name others;
  for (const auto& [name, a] : aoe_arrays()) others.emplace("model.layers.7." + name, a);
  others.erase("model.layers.7.W_p");
  CHECK(io::nearest_layer<aoe<>>(written(folder, others))->prefix == "model.layers.7.");
  CHECK(!io::nearest_layer<mxd<>, soft_moe<>>(written(folder, others)));
  CHECK(!io::nearest_layer<aoe<>>(written(folder, aoe_arrays())));
}

TEST_CASE("of several readings the one of more tensors counts", "[io]") {
  const auto linear = [](io::arrays_by_name& to, const std::string& layer, extent in, extent out,
                         std::vector<extent> experts) {
    extent k = 0;
    for (const extent n : experts)
      to.emplace(layer + "factors." + std::to_string(k++), numbers({n, 7}));
    to.emplace(layer + "factors." + std::to_string(k++), numbers({in, 7}));
    to.emplace(layer + "factors." + std::to_string(k), numbers({out, 7}));
  };
  const temporary_folder folder;
  io::arrays_by_name arrays;
  arrays.emplace("block.projs.0", numbers({5, 4}));
  linear(arrays, "block.MuMoE.", 6, 9, {4});
  linear(arrays, "block.MuMoE2.", 10, 3, {4});
  arrays.emplace("deep.projs.0",
                 // with one level these would be an input of 5 and an output of 6
                 numbers({5, 4}));
  arrays.emplace("deep.projs.1", numbers({5, 5}));
  linear(arrays, "deep.MuMoE.", 6, 3, {4, 5});
  const auto from = written(folder, arrays);
  CHECK(found<cp_mumoe<1>, cp_mumoe<2>, cp_mumoe_block<1>>(from) ==
        texts{"block.:2 7", "deep.:1 6"});
  CHECK(found<cp_mumoe<1>>(from) == texts{"block.:0 4", "deep.:0 4"});
  CHECK(found<tr_mumoe<1>, tr_mumoe<2>, dense_mumoe<1>>(from).empty());
  CHECK(load<cp_mumoe<2>>(
            from, {.prefix = "deep.", .metadata = {{"norm", "layer"}, {"activation", "entmax15"}}})
            .experts.outputs() == 3);

  arrays.emplace("deep.bn.0.running_mean", numbers({4}));
  arrays.emplace("deep.bn.0.running_var", numbers({4}));
  const temporary_folder half;  // only one of the two levels has statistics
  const auto e = caught([&] { io::layers_in<cp_mumoe<2>>(written(half, arrays)); });
  CHECK(e.code == errc::conflict);
  CHECK(e.file == half / "model.safetensors");

  const temporary_folder other;
  io::arrays_by_name sae;  // the tensors of an MxD without those of the gate
  add_mxd(sae, "");
  sae.erase("gate");
  CHECK(found<mxd<>, sparse_mlp<>>(written(other, sae)) == texts{":1 3"});
  sae.emplace("gate", numbers({40, 6}));
  CHECK(found<mxd<>, sparse_mlp<>>(written(other, sae)) == texts{":0 5"});
}

TEST_CASE("an outline costs and plans as the layer does, and holds no matrix", "[io]") {
  const temporary_folder folder;
  io::arrays_by_name arrays;
  add_mxd(arrays, "");
  const auto from = written(folder, arrays, {{"K", "3"}, {"activation", "silu"}});
  const auto whole = load<mxd<>>(folder / "model.safetensors");
  const auto layer = outline<mxd<>>(from);
  CHECK(layer.active == 3);
  CHECK(layer.activation == pointwise::silu);
  CHECK(layer.gate.shape() == whole.gate.shape());
  CHECK(layer.gate.data() == nullptr);
  CHECK(layer.decoder.data() == nullptr);
  CHECK(layer.skip.empty());
  CHECK(layer.encoder_bias(7) == whole.encoder_bias(7));

  const tensor<float, 2> x({100, 6});
  CHECK(explain(layer(x)).text == explain(whole(x)).text);
  const cost_report a = cost(layer(x)), b = cost(whole(x));
  CHECK(a.factorized.bytes == b.factorized.bytes);
  CHECK(a.naive_multiply_adds == b.naive_multiply_adds);
  CHECK(cost(outline<mxd<bf16>>(from, {.narrow = io::narrow})(x)).factorized.bytes <
        b.factorized.bytes);
  CHECK(caught([&] { outline<mxd<bf16>>(from); }).code == errc::dtype);
}

TEST_CASE("an outline of axes that a file joins", "[io]") {
  const temporary_folder folder;
  const io::arrays_by_name arrays{{"router", numbers({4, 3})},
                                  {"W_down", numbers({4, 6})},
                                  {"W_up", numbers({3, 2, 5})},
                                  {"W_p", numbers({3, 4, 5})},
                                  {"W_o", numbers({3, 5, 4})}};
  const auto layer = outline<moe<>>(written(folder, arrays), {.active = 2});
  CHECK(layer.down.shape() == std::array<extent, 3>{4, 3, 2});
  CHECK(layer.down.data() == nullptr);
}

TEST_CASE("what a checkpoint's metadata and shards say reaches who looks", "[io]") {
  const temporary_folder folder;
  io::arrays_by_name arrays;
  add_mxd(arrays, "");
  const auto from = written(folder, arrays, {{"K", "many"}});
  CHECK(from.metadata() == io::strings_by_name{{"K", "many"}});
  CHECK(io::layers_in<mxd<>>(from).size() == 1);  // by its tensors
  const auto e = caught([&] { outline<mxd<>>(from); });
  CHECK(e.code == errc::schema);
  CHECK(e.file == folder / "model.safetensors");

  const temporary_folder shards;
  io::safetensors::write(shards / "b.safetensors", arrays, {{"K", "many"}});
  std::string index;
  for (const auto& [name, a] : arrays)
    index += (index.empty() ? "" : ", ") + ('"' + name + "\": \"b.safetensors\"");
  put(shards / "model.safetensors.index.json", "{\"weight_map\": {" + index + "}}");
  const auto sharded = io::checkpoint::open(shards.path());
  CHECK(sharded.metadata() == io::strings_by_name{{"K", "many"}});
  CHECK(found<mxd<>>(sharded) == texts{":0 5"});
  CHECK(caught([&] { outline<mxd<>>(sharded); }).code == errc::schema);
  std::filesystem::remove(shards / "b.safetensors");
  CHECK(caught([&] { io::layers_in<mxd<>>(io::checkpoint::open(shards.path())); }).code ==
        errc::io);
}

TEST_CASE("numbers in prefixes count as numbers", "[io]") {
  const texts ordered{"", "a.", "a.2.", "a.10.", "a.10.b.", "a.10.b2", "a.b."};
  for (extent i = 0; i < ordered.size(); ++i)
    for (extent j = 0; j < ordered.size(); ++j)
      CHECK(io::comes_before(ordered[i], ordered[j]) == (i < j));
}

}  // namespace
