// SPDX-License-Identifier: MIT
// Cross-layer transcoders of circuit-tracer and of Gemma Scope 2.
#include <filesystem>

#include <fmoe/evaluate.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_model.hpp>
#include <fmoe/mxd.hpp>

#include "../support/agree.hpp"
#include "../support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using io::errc;

constexpr extent layers = 3, tokens = 17, inputs = 12, units = 40;
constexpr const char* folders[] = {"relu", "jump_relu", "gemma_scope_2"};

std::filesystem::path file_of(const std::string& folder, extent layer) {
  const std::string name = folder == "gemma_scope_2" ? "layer_" : "W_enc_";
  return "tests/cross_layer/" + folder + '/' + name + std::to_string(layer) + ".safetensors";
}

// Entry `layer` of an array of all layers.
template <class T>
tensor<T, 2> of_layer(const io::safetensors& file, const char* name, extent layer) {
  const auto all_layers = file.get<T, 3>(name);
  tensor<T, 2> result({all_layers.shape()[1], all_layers.shape()[2]});
  for (extent t = 0; t < result.shape()[0]; ++t)
    for (extent i = 0; i < result.shape()[1]; ++i) result(t, i) = all_layers(layer, t, i);
  return result;
}

// The outputs of all layers: the sum of what the units of each one write.
template <class T>
std::vector<double> model_output(const std::string& folder, const io::safetensors& io,
                                 const load_options& options = {}) {
  std::vector<double> y(layers * tokens * inputs);
  for (extent from = 0; from < layers; ++from) {
    const auto layer = load<cross_layer_transcoder<T>>(file_of(folder, from), options);
    const auto own = evaluate(layer(of_layer<float>(io, "x", from)));
    REQUIRE(own.shape() == std::array<extent, 3>{tokens, layers - from, inputs});
    for (extent t = 0; t < tokens; ++t)
      for (extent to = from; to < layers; ++to)
        for (extent o = 0; o < inputs; ++o)
          y[(to * tokens + t) * inputs + o] += double{own(t, to - from, o)};
  }
  return y;
}

TEST_CASE("cross-layer transcoders have the outputs of circuit-tracer", "[io][dictionary]") {
  for (const std::string folder : folders) {
    INFO(folder);
    const auto io = io::safetensors::read("tests/cross_layer/" + folder + ".io.safetensors");
    const auto y = io.get<double, 3>("y");
    const std::vector<double> wanted(y.begin(), y.end());
    CHECK(relative_error(model_output<float>(folder, io).data(), wanted) < 2e-6);
    CHECK(relative_error(model_output<double>(folder, io).data(), wanted) < 1e-12);
    CHECK(relative_error(model_output<bf16>(folder, io, {.narrow = io::narrow}).data(), wanted) <
          0.2);
    for (extent n = 0; n < layers; ++n) {
      const auto x = of_layer<float>(io, "x", n);
      const auto z = of_layer<double>(io, "z", n);
      const auto from = io::checkpoint::open(file_of(folder, n));
      const auto layer = load<cross_layer_transcoder<>>(from);
      const auto found = evaluate(layer.coefficients(x));
      CHECK(relative_error(found.data(), {z.begin(), z.end()}) < 2e-6);
      CHECK(io::layers_in<sparse_mlp<>>(from).empty());
      CHECK(io::layers_in<sparse_mlp<>, cross_layer_transcoder<>>(from).size() == 1);
    }
  }
}

TEST_CASE("a cross-layer transcoder is saved and loaded", "[io][dictionary]") {
  const temporary_folder folder;
  for (const char* name : folders) {
    const auto layer = load<cross_layer_transcoder<>>(file_of(name, 1));
    const auto x = random<tensor<float, 2>>({5, inputs}, 9);
    save(layer, folder / "own.safetensors");
    const auto again = load<cross_layer_transcoder<>>(folder / "own.safetensors");
    CHECK(std::ranges::equal(evaluate(layer(x)), evaluate(again(x))));
    const auto own = io::checkpoint::open(folder / "own.safetensors");
    CHECK(io::layers_in<sparse_mlp<>, cross_layer_transcoder<>>(own).size() == 1);
    CHECK(caught([&] { load<sparse_mlp<>>(folder / "own.safetensors"); }).code == errc::shape);
    CHECK(caught([&] { save(layer, folder / "x", {.form = file_form::saelens}); }).code ==
          errc::conflict);
  }
}

TEST_CASE("a model has a result of two axes", "[io][dictionary]") {
  const auto load = [] { load_model<cross_layer_transcoder<>>(file_of("relu", 1), 8); };
  const io::error e = caught(load);
  CHECK(e.code == errc::conflict);
  CHECK(std::string(e.what()).find("whose y has 3 axes") != std::string::npos);
}

TEST_CASE("a unit of a cross-layer transcoder writes to each layer", "[io][dictionary]") {
  const auto layer = load<cross_layer_transcoder<>>(file_of("jump_relu", 0));
  const auto x = random<tensor<float, 2>>({5, inputs}, 9);
  const auto z = evaluate(layer.coefficients(x)), with = evaluate(layer.contribution_norms(x));
  auto without = z;
  for (extent t = 0; t < 5; ++t) without(t, 7) = 0;
  const auto y = evaluate(layer.mixed(x, z)), less = evaluate(layer.mixed(x, without));
  const auto of_unit = layer.expert(7);
  REQUIRE(of_unit.shape() == std::array<extent, 2>{layers, inputs});
  bool is_active = false;
  for (extent t = 0; t < 5; ++t) {
    is_active = is_active || z(t, 7) != 0;
    double squares = 0;
    for (extent l = 0; l < layers; ++l)
      for (extent o = 0; o < inputs; ++o) {
        const double part = double{y(t, l, o)} - double{less(t, l, o)};
        CHECK(std::abs(part - double{z(t, 7)} * double{of_unit(l, o)}) < 1e-5);
        squares += part * part;
      }
    CHECK(std::abs(std::sqrt(squares) - with(t, 7)) < 1e-5);
  }
  CHECK(is_active);
  CHECK_THROWS_AS(layer.expert(units), value_error);
}

TEST_CASE("both files of a layer of circuit-tracer are needed, and either opens it", "[io]") {
  const temporary_folder folder;
  const auto encoder = folder / "W_enc_1.safetensors", decoder = folder / "W_dec_1.safetensors";
  std::filesystem::copy("tests/cross_layer/relu/W_enc_1.safetensors", encoder);
  const io::error missing = caught([&] { load<cross_layer_transcoder<>>(encoder); });
  CHECK(missing.code == errc::io);
  CHECK(missing.file == decoder);
  std::filesystem::copy("tests/cross_layer/relu/W_dec_1.safetensors", decoder);
  const auto x = random<tensor<float, 2>>({5, inputs}, 9);
  CHECK(std::ranges::equal(evaluate(load<cross_layer_transcoder<>>(encoder)(x)),
                           evaluate(load<cross_layer_transcoder<>>(decoder)(x))));
  const auto before = io::safetensors::read(encoder);
  io::arrays_by_name more{{"W_skip_1", random<tensor<float, 2>>({inputs, inputs}, 1)}};
  for (const io::array& a : before.arrays()) more.emplace(a.name(), a);
  io::safetensors::write(encoder, more);
  CHECK(caught([&] { load<cross_layer_transcoder<>>(encoder); }).code == errc::extra_tensor);
}

// circuit-tracer's units, which have no ReLU, may be below 0 there.
TEST_CASE("a unit of Gemma Scope 2 with a threshold below 0 is a ReLU's", "[io][dictionary]") {
  const temporary_folder folder;
  const auto file = folder / "layer_1.safetensors";
  const auto before = io::safetensors::read(file_of("gemma_scope_2", 1));
  io::arrays_by_name arrays;
  for (const io::array& a : before.arrays()) arrays.emplace(a.name(), a);
  arrays.insert_or_assign("threshold", tensor<float, 1>({units}, std::vector<float>(units, -0.5f)));
  io::safetensors::write(file, arrays);
  const auto x = random<tensor<float, 2>>({5, inputs}, 9);
  const auto layer = load<cross_layer_transcoder<>>(file);
  const auto z = evaluate(layer.coefficients(x));
  const auto wanted =
      evaluate(relu(add_bias(einsum<"ti,ih->th">(x, layer.encoder), layer.encoder_bias)));
  CHECK(std::ranges::equal(z, wanted));
}

TEST_CASE("a cross-layer transcoder of Gemma Scope 2 needs the number of its layer", "[io]") {
  const temporary_folder folder;
  const auto file = folder / "params.safetensors";
  std::filesystem::copy(file_of("gemma_scope_2", 1), file);
  const io::error unsaid = caught([&] { load<cross_layer_transcoder<>>(file); });
  CHECK(unsaid.code == errc::missing_setting);
  CHECK(std::string(unsaid.what()).find("\"layer\"") != std::string::npos);
  const auto loaded = [&](const char* layer) {
    return load<cross_layer_transcoder<>>(file, {.metadata = {{"layer", layer}}});
  };
  CHECK(loaded("1").decoder.shape() == std::array<extent, 3>{units, layers - 1, inputs});
  CHECK(loaded("0").decoder.shape() == std::array<extent, 3>{units, layers, inputs});
  const io::error earlier = caught([&] { loaded("2"); });
  CHECK(std::string(earlier.what()).find("write to layers before layer 2") != std::string::npos);
  CHECK(std::string(caught([&] { loaded("3"); }).what()).find("has no layer 3") !=
        std::string::npos);
}

}  // namespace
