// SPDX-License-Identifier: MIT
// A group of Monet layers shares the router of its first layer, which sees the hidden state of that
// layer alone. Compares the layers of a file with double loops over the whole group.
#include <functional>

#include <fmoe/dynamic.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/load_model.hpp>
#include <fmoe/quantize.hpp>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/monet.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using dynamic::expression;
using io::errc;

constexpr extent layers_of_group = 4;

std::string prefix_of(extent layer) { return "model.layers." + std::to_string(layer) + '.'; }

template <class T, std::size_t Rank>
expression leaf(const tensor<T, Rank>& t) {
  return dynamic::constant(detail::any_of(t));
}
std::pair<expression, expression> routing_inputs() {
  return {dynamic::input(1, 3), dynamic::input(2, 3)};
}

tensor<float, 3> floats(const tensor<double, 3>& from) {
  tensor<float, 3> to(from.shape());
  std::ranges::copy(std::vector<float>(from.begin(), from.end()), to.begin());
  return to;
}

double error_of(const expression& y, const std::vector<double>& wanted) {
  const dynamic::tensor made = dynamic::evaluate({y})[0];
  REQUIRE(detail::element_count(made.shape) == wanted.size());
  return relative_error(static_cast<const float*>(made.elements->data()), wanted);
}
bool is_close(const expression& y, const std::vector<double>& wanted) {
  return error_of(y, wanted) < 3e-6;
}

// The layers 0 to 3 of a model of random weights, an input of each, and their outputs in double.
template <class Layer>
struct group {
  monet_sizes n;
  monet_router<> router;
  std::vector<Layer> layers;
  std::vector<tensor<float, 2>> x;
  tensor<double, 3> g1, g2;
  std::vector<std::vector<double>> y;

  group(const std::function<Layer(unsigned)>& make, bool released)
      : router(random_router<float>(n, 50, 2, released)) {
    for (unsigned l = 0; l < layers_of_group; ++l) {
      layers.push_back(make(100 * l));
      x.push_back(random<tensor<float, 2>>({n.t, n.d}, 7 + l));
    }
    g1 = routed(router.keys1, router.mean1, router.variance1, 0);
    g2 = routed(router.keys2, router.mean2, router.variance2, 0);
    for (extent l = 0; l < layers_of_group; ++l) y.push_back(output(layers[l], x[l], g1, g2));
  }

  // What one side of the router makes of the input of a layer.
  tensor<double, 3> routed(const parameter<float, 2>& keys, const parameter<float, 1>& mean,
                           const parameter<float, 1>& variance, extent layer) const {
    const double share = static_cast<double>(router.active) / static_cast<double>(n.s),
                 sigma = detail::normal_quantile_above(share);
    return {{n.t, n.p, n.s}, routing_of(x[layer], keys, mean, variance, n.p, router.active, sigma)};
  }

  // The model in a folder, with the router at these layers.
  io::checkpoint in(const temporary_folder& folder, const io::strings_by_name& metadata,
                    const std::string& config = {},
                    const std::vector<extent>& routers = {0}) const {
    io::arrays_by_name all;
    const auto add = [&](const auto& part, extent layer) {
      all.merge(io::arrays_of(part, {}, {.prefix = prefix_of(layer)}).arrays);
    };
    for (extent l = 0; l < layers_of_group; ++l) add(layers[l], l);
    for (const extent l : routers) add(router, l);
    io::strings_by_name said = metadata;
    if (config.empty()) said.try_emplace("activation", "squared_relu");
    else put(folder / "config.json", config);
    io::safetensors::write(folder / "model.safetensors", all, said);
    return io::checkpoint::open(folder.path());
  }
};

group<monet_hd<>> hd_group() {
  return {[](unsigned seed) { return random_hd<float>({}, seed); }, false};
}
group<monet_vd<>> vd_group() {
  return {[](unsigned seed) { return random_vd<float>({}, seed); }, true};
}

dynamic::layer layer_in(const io::checkpoint& from, extent layer) {
  return dynamic::load<monet_hd<>, monet_vd<>>(from, {.prefix = prefix_of(layer)});
}

template <class Layer>
void check_group(const group<Layer>& all, const io::strings_by_name& metadata) {
  const temporary_folder folder;
  const io::checkpoint from = all.in(folder, metadata);
  const dynamic::layer first = layer_in(from, 0);
  CHECK_FALSE(first.needs_routing());
  CHECK(is_close(first(leaf(all.x[0])), all.y[0]));
  const auto routing = first.routing(leaf(all.x[0]));
  for (extent l = 1; l < layers_of_group; ++l) {
    INFO("layer " << l);
    const dynamic::layer other = layer_in(from, l);
    CHECK(other.needs_routing());
    CHECK(is_close(other(leaf(all.x[l]), routing), all.y[l]));
    // Its own x routes otherwise, so that a router that is asked by mistake is seen.
    CHECK_FALSE(is_close(other(leaf(all.x[l]), first.routing(leaf(all.x[l]))), all.y[l]));

    const auto g1 = floats(all.g1), g2 = floats(all.g2);
    const auto forward = dynamic::compile({other(dynamic::input(0), routing_inputs())}, all.n.t);
    REQUIRE(forward.inputs() == 3);
    CHECK(forward.input_shape(1) == std::vector<std::size_t>{all.n.p, all.n.s});
    tensor<float, 2> y({all.n.t, all.n.d});
    const auto array = [](const auto& t) {
      return dynamic::array{
          const_cast<float*>(t.data()), dtype::float32, {t.shape().begin(), t.shape().end()}};
    };
    forward(std::array{array(all.x[l]), array(g1), array(g2), array(y)});
    CHECK(relative_error(y.data(), all.y[l]) < 3e-6);

    const std::string refusal = "the layer has no router";
    const expression x = leaf(all.x[l]);
    CHECK_THROWS_WITH(other(x), containing(refusal));
    CHECK_THROWS_WITH(other.routing(x), containing(refusal));
    CHECK_THROWS_AS(other.coefficients(x), value_error);
    CHECK_THROWS_AS(other.expert_output(x, 0), value_error);
    CHECK_THROWS_WITH(dynamic::compile_gradients(other, 4), containing(refusal));
    dynamic::layer changed = other;
    CHECK_THROWS_WITH(changed.update_statistics(all.x[l]), containing(refusal));
    const auto e = caught(
        [&] { load_model<monet_hd<>, monet_vd<>>(from, all.n.t, {.prefix = prefix_of(l)}); });
    CHECK(e.code == errc::missing_tensor);
    CHECK(e.tensor == prefix_of(l) + "router.w1.weight");
  }
  const model alone = load_model<monet_hd<>, monet_vd<>>(from, all.n.t, {.prefix = prefix_of(0)});
  CHECK(relative_error(alone(all.x[0]).data(), all.y[0]) < 3e-6);
}

TEST_CASE("the layers of a Monet group take the routing of the first one", "[monet_group]") {
  check_group(hd_group(), {{"K", "2"}, {"heads", "3"}});
  check_group(vd_group(), {{"K", "2"}});
}

TEST_CASE("a Monet layer with a router does not ask it if a routing is given", "[monet_group]") {
  const auto all = hd_group();
  const temporary_folder folder;
  const dynamic::layer first = layer_in(all.in(folder, {{"K", "2"}, {"heads", "3"}}), 0);
  const auto g1 = all.routed(all.router.keys1, all.router.mean1, all.router.variance1, 2),
             g2 = all.routed(all.router.keys2, all.router.mean2, all.router.variance2, 2);
  const expression x = leaf(all.x[0]);
  CHECK(is_close(first(x, first.routing(leaf(all.x[2]))), output(all.layers[0], all.x[0], g1, g2)));
  const auto both = dynamic::compile({first(dynamic::input(0), routing_inputs())}, all.n.t);
  CHECK(both.inputs() == 3);
}

TEST_CASE("a Monet layer without a router is saved, edited and quantized", "[monet_group]") {
  const auto all = hd_group();
  const temporary_folder folder;
  const auto from = all.in(folder, {{"K", "2"}, {"heads", "3"}});
  const auto routing = layer_in(from, 0).routing(leaf(all.x[0]));
  const dynamic::layer other = layer_in(from, 2);
  const expression x = leaf(all.x[2]);
  const auto alone = [&](const dynamic::layer& l) {
    l.save(folder / "alone.safetensors");
    return dynamic::load<monet_hd<>, monet_vd<>>(folder / "alone.safetensors");
  };

  const dynamic::layer again = alone(other);
  CHECK(again.needs_routing());
  CHECK(again.settings() == other.settings());
  CHECK(other.settings() == io::strings_by_name{{"activation", "squared_relu"}, {"heads", "3"}});
  CHECK(other.arrays().arrays.size() == 4);
  CHECK(other.parameters().size() == 4);
  CHECK(is_close(again(x, routing), all.y[2]));
  CHECK(dynamic::compile({again(dynamic::input(0), routing_inputs())}, 4).inputs() == 3);

  auto deleted = all.layers[2];
  deleted.deleted = {{1, 2}, {3, 0}};
  const dynamic::layer without = other.ablated_pairs({{1, 2}, {3, 0}});
  const auto wanted = output(deleted, all.x[2], all.g1, all.g2);
  CHECK(is_close(without(x, routing), wanted));
  CHECK(is_close(alone(without)(x, routing), wanted));
  CHECK_FALSE(is_close(without(x, routing), all.y[2]));

  const dynamic::layer small = other.quantize();
  CHECK(small.needs_routing());
  const double rounded = error_of(small(x, routing), all.y[2]);
  CHECK((rounded > 1e-4 && rounded < 0.05));

  const auto used = [&](const expression& y) {
    return dynamic::explain({y}, 4).text.find("multiply-adds") != std::string::npos &&
           dynamic::cost(y, 4).factorized.multiply_adds > 0;
  };
  CHECK(used(other(dynamic::input(0), routing_inputs())));
}

TEST_CASE("a Monet layer without a router has gradients as an expression", "[monet_group]") {
  const auto all = hd_group();
  const temporary_folder folder;
  const dynamic::layer other = layer_in(all.in(folder, {{"K", "2"}, {"heads", "3"}}), 1);
  const auto g1 = floats(all.g1), g2 = floats(all.g2);
  const auto dy = random<tensor<float, 2>>({all.n.t, all.n.d}, 77);
  const auto& l = all.layers[1];
  const auto wanted = reference(gradient(l(all.x[1], g1, g2), g1, dy));
  const expression first = leaf(g1);
  const expression y = other(leaf(all.x[1]), {first, leaf(g2)});
  CHECK(is_close(dynamic::gradient(y, first, leaf(dy)), wanted));
}

TEST_CASE("config.json says what the files of a Monet model do not", "[monet_group]") {
  using text = std::string;
  const auto all = hd_group();
  const text config =
      R"({"model_type": "monet", "hidden_act": "relu2", "moe_topk": 2, "moe_heads": 3, "moe_groups": 4})";
  const temporary_folder folder;
  const auto from = all.in(folder, {}, config);
  const expression x0 = leaf(all.x[0]), x3 = leaf(all.x[3]);
  const auto first = dynamic::load<monet_hd<>>(from, {.prefix = "model.layers.0."});
  const auto other = dynamic::load<monet_hd<>>(from, {.prefix = "model.layers.3."});
  const expression y3 = other(x3, first.routing(x0));
  CHECK(first.settings().at("K") == "2");
  CHECK(is_close(first(x0), all.y[0]));
  CHECK(is_close(y3, all.y[3]));
  CHECK(dynamic::compile({other(dynamic::input(0), routing_inputs())}, 4).inputs() == 3);
  CHECK(relative_error(
            load_model<monet_hd<>>(from, all.n.t, {.prefix = prefix_of(0)})(all.x[0]).data(),
            all.y[0]) < 3e-6);

  const auto activation = [&](const text& named, extent layer = 1) {
    put(folder / "config.json",
        R"({"model_type": "monet", "moe_heads": 3, "moe_topk": 2)" +
            (named.empty() ? text() : R"(, "hidden_act": ")" + named + '"') + '}');
    return layer_in(from, layer).settings().at("activation");
  };
  CHECK(activation("silu") == "silu");
  CHECK(activation("gelu", 0) == "gelu");
  CHECK(activation("relu2") == "squared_relu");
  CHECK(caught([&] { activation(""); }).code == errc::missing_setting);
  CHECK(caught([&] { activation("rule"); }).code == errc::schema);

  // What the metadata or the caller say, too.
  const auto refused = [&](const io::strings_by_name& metadata, const text& said,
                           const load_options& options = {}, extent layer = 0,
                           const std::vector<extent>& routers = {0}) {
    const temporary_folder in;
    const auto model = all.in(in, metadata, said, routers);
    load_options asked = options;
    asked.prefix = prefix_of(layer);
    return caught([&] { dynamic::load<monet_hd<>, monet_vd<>>(model, asked); });
  };
  const auto e = refused({{"K", "3"}}, config);
  CHECK(e.code == errc::conflict);
  CHECK(text(e.what()).find("has K = \"3\" in its metadata, and \"2\" is in \"config.json\"") !=
        text::npos);
  CHECK(refused({{"heads", "9"}}, config).code == errc::conflict);
  CHECK(refused({{"heads", "9"}}, config, {}, 1).code == errc::conflict);
  CHECK(refused({{"activation", "gelu"}}, config, {}, 1).code == errc::conflict);
  CHECK(refused({}, config, {.active = 3}).code == errc::conflict);
  CHECK(refused({}, config, {.activation = pointwise::silu}, 1).code == errc::conflict);
  for (const char* no_count : {R"({"moe_topk": 0})", R"({"moe_topk": -1})", R"({"moe_topk": 1.5})",
                               R"({"moe_topk": "two"})", R"({"moe_heads": 0})"}) {
    INFO(no_count);
    const auto wrong = refused({}, no_count);
    CHECK(wrong.code == errc::schema);
    CHECK(wrong.file.filename() == "config.json");
  }
  const text of_others =
      R"({"moe_topk": 2, "moe_heads": 3, "moe_experts": 7, "hidden_act": "relu2"})";
  CHECK(text(refused({}, of_others).what()).find("has moe_experts = 7") != text::npos);
  CHECK(refused({}, config, {.active = 2}, 1).code == errc::conflict);  // there is no router

  // Routers are where moe_groups says.
  const text in_twos = R"({"moe_topk": 2, "moe_heads": 3, "moe_groups": 2})";
  const auto missing = refused({}, in_twos, {}, 2);
  CHECK(missing.code == errc::missing_tensor);
  CHECK(missing.tensor == prefix_of(2) + "router.w1.weight");
  const auto stray = refused({}, config, {}, 2, {0, 2});
  CHECK(stray.code == errc::conflict);
  CHECK(stray.tensor == prefix_of(2) + "router.w1.weight");
  CHECK(text(stray.what()).find("layer 2 takes the routing of layer 0") != text::npos);

  // A config.json of another architecture is not about Monet's layers.
  const temporary_folder beside;
  const auto model = all.in(beside, {{"K", "2"}, {"heads", "3"}, {"activation", "relu2"}},
                            R"({"model_type": "llama", "hidden_act": "silu", "moe_topk": 5})");
  CHECK(is_close(layer_in(model, 0)(leaf(all.x[0])), all.y[0]));
}

TEST_CASE("the heads of statistics and of config.json are compared", "[monet_group]") {
  const auto all = vd_group();
  const temporary_folder folder;
  const auto from = all.in(folder, {{"K", "2"}}, R"({"moe_heads": 4})");
  CHECK(caught([&] { layer_in(from, 0); }).code == errc::conflict);
}

TEST_CASE("a routing of other heads than the layer's, or of none, is refused", "[monet_group]") {
  const auto all = hd_group();
  const temporary_folder folder;
  const dynamic::layer known = layer_in(all.in(folder, {{"K", "2"}, {"heads", "3"}}), 1);
  const auto four = leaf(tensor<float, 3>({all.n.t, 4, all.n.s}));
  CHECK_THROWS_WITH(dynamic::evaluate({known(leaf(all.x[1]), {four, four})}),
                    containing("g1 has 4 heads and the layer's heads are 3"));
  const temporary_folder other;
  const dynamic::layer unknown = layer_in(all.in(other, {{"K", "2"}}), 1);
  const auto g1 = floats(all.g1), g2 = floats(all.g2);
  CHECK(is_close(unknown(leaf(all.x[1]), {leaf(g1), leaf(g2)}), all.y[1]));
  CHECK_THROWS_WITH(dynamic::compile({unknown(dynamic::input(0), routing_inputs())}, 4),
                    containing("compile does not know the heads"));
}

}  // namespace
