// SPDX-License-Identifier: MIT
// Dynamic expressions and layers give the bits of typed ones.
#include <algorithm>

#include <fmoe/cost.hpp>
#include <fmoe/dynamic.hpp>
#include <fmoe/edit.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/quantize.hpp>

#include "support/catch.hpp"
#include "support/files.hpp"
#include "support/oracle.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using dynamic::expression;

template <class T, std::size_t Rank>
expression leaf(const tensor<T, Rank>& t) {
  return dynamic::constant(detail::any_of(t));
}

template <class T, std::size_t Rank>
dynamic::array array_of(const tensor<T, Rank>& t) {
  return {const_cast<T*>(t.data()), detail::dtype_of<T>, {t.shape().begin(), t.shape().end()}};
}

// True if the value of an expression is this tensor, bit for bit.
template <class T, std::size_t Rank>
bool same(const dynamic::tensor& made, const tensor<T, Rank>& wanted) {
  return made.type == detail::dtype_of<T> && std::ranges::equal(made.shape, wanted.shape()) &&
         std::equal(wanted.data(), wanted.data() + wanted.size(),
                    static_cast<const T*>(made.elements->data()));
}
template <operand E>
bool same(const expression& made, const E& wanted) {
  CHECK(made.rank() == expression_t<E>::rank);
  return same(dynamic::evaluate({made})[0], evaluate(wanted));
}

TEST_CASE("dynamic operations are the typed ones", "[dynamic]") {
  const auto x = random<tensor<float, 2>>({7, 12}, 1), w = random<tensor<float, 2>>({7, 12}, 2);
  const auto b = random<tensor<float, 1>>({12}, 3);
  const auto keys = random<tensor<float, 3>>({7, 2, 6}, 4);
  const auto bound = random<tensor<float, 1>>({7}, 5);
  const expression X = leaf(x), W = leaf(w), B = leaf(b), K = leaf(keys);
  CHECK(same(dynamic::einsum("ti,si->ts", {X, W}), einsum<"ti,si->ts">(x, w)));
  CHECK(same(dynamic::einsum("t i, s i -> t s", {X, W}), einsum<"ti,si->ts">(x, w)));
  CHECK(same(dynamic::einsum("ti, si", {X, W}), einsum<"ti,si->st">(x, w)));
  CHECK(same(dynamic::apply(pointwise::gelu, X), gelu(x)));
  CHECK(same(dynamic::apply(pointwise::threshold, X, 0.25), threshold(x, 0.25)));
  CHECK(same(dynamic::add(X, B), x + b));
  CHECK(same(dynamic::add(B, X), b + x));
  CHECK(same(dynamic::subtract(X, W), x - w));
  CHECK(same(dynamic::multiply(X, B), x * b));
  CHECK(same(dynamic::divide(X, W), x / w));
  CHECK(same(dynamic::max(X, W), max(x, w)));
  CHECK(same(dynamic::min(X, B), min(x, b)));
  CHECK(same(dynamic::where(B, X, W), where(b, x, w)));
  CHECK(same(dynamic::map_rows(row_function::softmax, X), softmax(x)));
  CHECK(same(dynamic::map_rows(row_function::entmax, X, 1.5), entmax(x, 1.5)));
  CHECK(same(dynamic::map_rows(row_function::entmax, X, 1), entmax(x, 1)));
  CHECK(same(dynamic::map_rows(row_function::rms_norm, X, 1e-6), rms_norm(x)));
  CHECK(same(dynamic::map_rows(dynamic::row_function_named("sparse_mixer"), X, 0.2),
             sparse_mixer(x, 0.2)));
  CHECK(same(dynamic::bounded_softmax(X, leaf(bound)), bounded_softmax(x, bound)));
  CHECK(same(dynamic::norm(row_norm::l2, X), norm(row_norm::l2, x)));
  CHECK(same(dynamic::top_k(X, 3, weighting::softmax), top_k(x, 3, weighting::softmax)));
  CHECK(same(dynamic::top_k(X, all), top_k(x, all)));
  CHECK(same(dynamic::top_p(X, 0.6, weighting::score), top_p(x, 0.6, weighting::score)));
  CHECK(same(dynamic::nonzeros(X), nonzeros(x)));
  CHECK(same(dynamic::jump_relu(X, B), jump_relu(x, b)));
  CHECK(same(dynamic::expert_choice(X, W, weighting::softmax, 2),
             expert_choice(x, w, weighting::softmax, 2)));
  CHECK(same(dynamic::product_top_k(K, 4, 4), product_top_k(keys, 4, 4)));
  CHECK(same(dynamic::kept_values(dynamic::top_k(X, 3)), kept(top_k(x, 3)).values));
  CHECK(same(dynamic::kept_indices(dynamic::top_k(X, 3)), kept(top_k(x, 3)).indices));
  CHECK(same(dynamic::concat({X, W}, 1), concat<1>(x, w)));
  CHECK(same(dynamic::append_one(X), append_one(x)));
  CHECK(same(dynamic::repeat(B, 3), repeat(b, 3)));
  CHECK(same(dynamic::top_k(X, W, 3), top_k(x, w, 3)));
  CHECK(same(dynamic::top_k(X, W, all), top_k(x, w, all)));
  const std::array pairs{index_pair{2, 5}, index_pair{0, 0}};
  CHECK(same(dynamic::einsum("it,tj,ij->tj",
                             {X, dynamic::einsum("ti->it", {W}), dynamic::all_except(pairs, 7, 7)}),
             einsum<"it,tj,ij->tj">(x, einsum<"ti->it">(w), all_except(pairs, 7, 7))));
  CHECK(same(dynamic::sized(X, {7, all}), sized(x, {7, all})));
  CHECK(same(dynamic::gradient(dynamic::multiply(X, W), W, X), gradient(x * w, w, x)));
  CHECK_THROWS_AS(dynamic::evaluate({dynamic::gradient(X, W, X)}), value_error);
  CHECK_THROWS_AS(evaluate(gradient(x, w, x)), value_error);
}

TEST_CASE("one operand of double makes an expression of double", "[dynamic]") {
  const auto x = random<tensor<double, 2>>({5, 4}, 1);
  const auto w = random<tensor<float, 2>>({4, 3}, 2);
  const expression y = dynamic::einsum("ti,io->to", {leaf(x), leaf(w)});
  CHECK(y.type() == dtype::float64);
  CHECK(same(y, einsum<"ti,io->to">(x, w)));
  const auto narrow = random<tensor<float, 2>>({5, 4}, 3);
  CHECK(expression(choose(true, narrow, x)).type() == dtype::float64);
  CHECK(expression(add_if(false, narrow, x)).type() == dtype::float64);
  CHECK(same(expression(choose(true, narrow, x)), choose(true, narrow, x)));
}

TEST_CASE("dynamic expressions are compiled with several inputs and results", "[dynamic]") {
  const auto x = random<tensor<float, 2>>({9, 6}, 1), g = random<tensor<float, 2>>({9, 4}, 2);
  const auto w = random<parameter<float, 3>>({4, 6, 5}, 3);
  const expression in = dynamic::input(0), gate = dynamic::input(1);
  const expression a = dynamic::top_k(gate, 2, weighting::softmax);
  const expression y = dynamic::einsum("tn,ti,nio->to", {a, in, expression(w)}),
                   sums = dynamic::einsum("tn->n", {a});
  const auto forward = dynamic::compile({y, sums}, 16);
  REQUIRE(forward.inputs() == 2);
  REQUIRE(forward.outputs() == 2);
  CHECK(forward.input_shape(0) == std::vector<std::size_t>{6});
  CHECK(forward.output_shape(1) == std::vector<std::size_t>{4});
  CHECK(forward.has_tokens(0));
  CHECK_FALSE(forward.has_tokens(1));

  tensor<float, 2> made({9, 5});
  tensor<float, 1> made_sums({4});
  forward(std::array{array_of(x), array_of(g), array_of(made), array_of(made_sums)});
  const auto typed = compile(
      [&](const auto& i, const auto& j) {
        const auto k = top_k(j, 2, weighting::softmax);
        return std::tuple(einsum<"tn,ti,nio->to">(k, i, w), einsum<"tn->n">(k));
      },
      arguments<2, 2>{}, 16);
  const auto [wanted, wanted_sums] = typed(x, g);
  CHECK(std::ranges::equal(made, wanted));
  CHECK(std::ranges::equal(made_sums, wanted_sums));
  CHECK_THROWS_AS(
      forward(std::array{array_of(x), array_of(x), array_of(made), array_of(made_sums)}),
      shape_error);

  CHECK(dynamic::explain({y}, 16).text.find("top_k") != std::string::npos);
  const auto mixture = einsum<"tn,ti,nio->to">(top_k(g, 2, weighting::softmax), x, w);
  CHECK(dynamic::cost(y, 9).factorized.multiply_adds == cost(mixture).factorized.multiply_adds);
}

TEST_CASE("a gradient of inputs is compiled before the tokens are counted", "[dynamic]") {
  const auto w = random<tensor<float, 2>>({6, 4}, 1);
  const auto x = random<tensor<float, 2>>({5, 6}, 2), dy = random<tensor<float, 2>>({5, 4}, 3);
  const auto of = [&](const expression& rows, const expression& slope) {
    const expression p = leaf(w), y = dynamic::einsum("ti,io->to", {rows, p});
    return dynamic::gradient(y, p, slope);
  };
  const auto wanted = dynamic::evaluate({of(leaf(x), leaf(dy))})[0];
  const auto step = dynamic::compile({of(dynamic::input(0), dynamic::input(1))}, 8);
  tensor<float, 2> made({6, 4});
  step(std::array{array_of(x), array_of(dy), array_of(made)});
  CHECK(same(wanted, made));
}

TEST_CASE("a file's layer of any kind is a dynamic layer", "[dynamic]") {
  const temporary_folder folder;
  const auto x = random<tensor<float, 2>>({5, 6}, 9);
  mxd<> mixture;
  mixture.encoder = random<tensor<float, 2>>({6, 8}, 1);
  mixture.gate = random<tensor<float, 2>>({6, 40}, 2);
  mixture.scales = random<tensor<float, 2>>({40, 6}, 3);
  mixture.decoder = random<tensor<float, 2>>({8, 6}, 4);
  mixture.active = 3;
  cp_mumoe<2> deep;
  deep.gate.projections = {random<tensor<float, 2>>({6, 5}, 1),
                           random<tensor<float, 2>>({6, 3}, 2)};
  deep.experts = {{random<tensor<float, 2>>({5, 4}, 3), random<tensor<float, 2>>({3, 4}, 4)},
                  random<tensor<float, 2>>({6, 4}, 5),
                  random<tensor<float, 2>>({3, 4}, 6)};
  const auto loaded = [&](const auto& layer) {
    save(layer, folder / "layer.safetensors");
    return dynamic::load<mxd<>, cp_mumoe<2>>(folder / "layer.safetensors");
  };

  const dynamic::layer any = loaded(mixture);
  CHECK(any.settings().at("kind") == "mxd_mlp");
  CHECK(any.levels() == 1);
  CHECK(any.arrays().arrays.size() == 4);
  CHECK(same(any(leaf(x)), mixture(x)));
  const expression a = any.coefficients(leaf(x));
  CHECK(same(a, mixture.coefficients(x)));
  CHECK(same(any.mixed(leaf(x), {a}), mixture(x)));
  CHECK(same(any.expert({7}), mixture.expert(7)));
  CHECK(same(any.expert_output(leaf(x), 7), expert_output(mixture, x, 7)));
  any.save(folder / "copy.safetensors");
  CHECK(std::ranges::equal(evaluate(load<mxd<>>(folder / "copy.safetensors")(x)),
                           evaluate(mixture(x))));

  const dynamic::layer hierarchy = loaded(deep);
  CHECK(hierarchy.levels() == 2);
  CHECK(same(hierarchy.coefficients(leaf(x), 1), deep.coefficients<1>(x)));
  CHECK(same(hierarchy.expert({4, 2}), deep.experts.expert(4, 2)));
}

TEST_CASE("a dynamic layer is quantized as a typed one", "[dynamic]") {
  const temporary_folder folder;
  const auto x = random<tensor<float, 2>>({5, 13}, 9);
  const auto file = "tests/golden/mxd/mxd_glu_silu_k4.weights.safetensors";
  const auto mixture = load<mxd<>>(file, {.active = 4, .activation = pointwise::silu});
  const dynamic::layer any(mixture), small = any.quantize();
  CHECK(same(small(leaf(x)), quantize(mixture)(x)));
  CHECK(same(any.quantize(dtype::q8c)(leaf(x)), quantize<q8c>(mixture)(x)));
  CHECK(same(small.coefficients(leaf(x)), quantize(mixture).coefficients(x)));
  CHECK(same(small.ablated({3})(leaf(x)), ablated(quantize(mixture), {3})(x)));
  CHECK(small.settings() == any.settings());
  small.save(folder / "small.safetensors");
  CHECK(same(small(leaf(x)), load<mxd<q8>>(folder / "small.safetensors")(x)));
  CHECK_THROWS_WITH(small.quantize(), containing("[quantize] the layer is an edit or has weights"));
  CHECK_THROWS_WITH(any.ablated({3}).quantize(), containing("[quantize] the layer is an edit"));
  CHECK_THROWS_WITH(any.quantize(dtype::bfloat16), containing("the type is bfloat16"));
}

TEST_CASE("elements are read where their source has them now", "[dynamic]") {
  std::vector<float> first{1, 2}, second{3, 5}, rows{1, 10};
  const auto place = std::make_shared<const void*>(first.data());
  const dynamic::tensor t{dtype::float32, {2}, std::make_shared<storage>(first.data(), 8, nullptr)};
  t.elements->set_source(
      {place, [](const void* from, void*) { return *static_cast<const void* const*>(from); }});
  const expression w = dynamic::constant(t), y = dynamic::apply(pointwise::scale, w, 2);
  auto call = dynamic::compile({dynamic::multiply(dynamic::input(0), w)}, 1);
  const auto value = [&] {
    const dynamic::tensor made = dynamic::evaluate({y})[0];
    return std::vector<float>(static_cast<const float*>(made.elements->data()),
                              static_cast<const float*>(made.elements->data()) + 2);
  };
  const auto called = [&] {
    std::vector<float> out(2);
    const std::vector<dynamic::array> arrays{{rows.data(), dtype::float32, {1, 2}},
                                             {out.data(), dtype::float32, {1, 2}}};
    call(arrays);
    return out;
  };
  CHECK(value() == std::vector<float>{2, 4});
  CHECK(called() == std::vector<float>{1, 20});
  *place = second.data();
  CHECK(value() == std::vector<float>{6, 10});
  CHECK(called() == std::vector<float>{1, 20});  // as they were at the last refresh
  call.refresh();
  CHECK(called() == std::vector<float>{3, 50});
}

TEST_CASE("a dynamic layer is edited as a typed one", "[dynamic]") {
  const auto x = random<tensor<float, 2>>({5, 6}, 9);
  const auto matrix = [](std::size_t rows, std::size_t columns, unsigned seed) {
    return random<tensor<float, 2>>({rows, columns}, seed);
  };
  mxd<> mixture;
  mixture.encoder = matrix(6, 8, 1);
  mixture.gate = matrix(6, 40, 2);
  mixture.scales = matrix(40, 6, 3);
  mixture.decoder = matrix(8, 6, 4);
  mixture.active = 30;
  std::vector<double> mean(40);
  for (std::size_t n = 0; n < mean.size(); ++n) mean[n] = static_cast<double>(n) / 40;
  const dynamic::layer any(mixture);
  CHECK(same(any.ablated({3, 5})(leaf(x)), ablated(mixture, {3, 5})(x)));
  CHECK(same(any.steered(4, 1.5)(leaf(x)), steered(mixture, 4, 1.5)(x)));
  CHECK(same(any.rewritten(2, mean, -0.5)(leaf(x)), rewritten(mixture, 2, mean, -0.5)(x)));
  CHECK(same(any.ablated({3}).steered(3, 2).ablated({7})(leaf(x)),
             ablated(steered(ablated(mixture, {3}), 3, 2), {7})(x)));
  CHECK_FALSE(same(any.ablated({3})(leaf(x)), mixture(x)));
  CHECK(any.ablated({3}).settings() == any.settings());
  CHECK(same(any.ablated({3}).expert_output(leaf(x), 3), expert_output(mixture, x, 3)));
  mxd<> fewer = mixture;
  fewer.active = 3;
  CHECK(same(any.with_active(3)(leaf(x)), fewer(x)));
  CHECK(same(any(leaf(x)), mixture(x)));
  CHECK(any.with_active(3).settings() == dynamic::layer(fewer).settings());
  CHECK_THROWS_WITH(any.ablated({3}).with_active(3),
                    containing("[with_active] this kind of layer has none"));

  sparse_mlp<> units;  // the output of whose experts has no axis of tokens
  units.encoder = matrix(6, 8, 1);
  units.decoder = matrix(8, 6, 4);
  units.active = 3;
  const dynamic::layer transcoder(units);
  CHECK(same(transcoder.steered(4, 1.5)(leaf(x)), steered(units, 4, 1.5)(x)));
  CHECK(
      same(transcoder.ablated({3}).steered(3, 2)(leaf(x)), steered(ablated(units, {3}), 3, 2)(x)));
  CHECK(same(transcoder.expert_output(leaf(x), 3), expert_output(units, x, 3)));
  CHECK(same(transcoder.ablated({3}).expert_output(leaf(x), 3), expert_output(units, x, 3)));

  cross_layer_transcoder<> crossing;
  crossing.encoder = units.encoder;
  crossing.decoder = random<tensor<float, 3>>({8, 3, 6}, 5);
  const dynamic::layer wide(crossing);
  CHECK(same(wide(leaf(x)), crossing(x)));
  CHECK(same(wide.ablated({3, 5})(leaf(x)), ablated(crossing, {3, 5})(x)));
  CHECK(same(wide.steered(4, 1.5)(leaf(x)), steered(crossing, 4, 1.5)(x)));
  CHECK(same(wide.ablated({3}).steered(3, 2)(leaf(x)), steered(ablated(crossing, {3}), 3, 2)(x)));

  cp_mumoe<2> deep;
  deep.gate.projections = {matrix(6, 5, 1), matrix(6, 3, 2)};
  deep.experts = {{matrix(5, 4, 3), matrix(3, 4, 4)}, matrix(6, 4, 5), matrix(3, 4, 6)};
  const dynamic::layer hierarchy(deep);
  CHECK(same(hierarchy.ablated({2}, 1)(leaf(x)), ablated<1>(deep, {2})(x)));
  CHECK(same(hierarchy.ablated({2}, 1).steered(4, 0.5)(leaf(x)),
             steered(ablated<1>(deep, {2}), 4, 0.5)(x)));

  peer<> table;
  table.queries = matrix(6, 2 * 2 * 4, 1);
  table.keys = random<tensor<float, 4>>({2, 5, 2, 4}, 2);
  table.down = matrix(25, 6, 3);
  table.up = matrix(25, 6, 4);
  table.active = 3;
  const dynamic::layer product_keys(table);
  CHECK(same(product_keys.ablated({1, 7})(leaf(x)), ablated(table, {1, 7})(x)));
  CHECK(same(product_keys.steered(7, 2)(leaf(x)), steered(table, 7, 2)(x)));
}

TEST_CASE("a dynamic Monet layer has its router", "[dynamic]") {
  const temporary_folder folder;
  monet_hd<> layer;
  layer.encoder = random<tensor<float, 2>>({6, 8}, 1);
  layer.decoder = random<tensor<float, 2>>({8, 6}, 2);
  layer.bias = random<tensor<float, 2>>({4, 6}, 3);
  monet_router<> router;
  router.keys1 = random<tensor<float, 2>>({6, 8}, 4);
  router.keys2 = random<tensor<float, 2>>({6, 8}, 5);
  router.heads = 2;
  router.active = 3;
  const dynamic::layer both(detail::routed_monet<monet_hd<>>{layer, router});
  const auto x = random<tensor<float, 2>>({5, 6}, 9);
  const auto wanted = evaluate(layer(x, router.g1(x), router.g2(x)));
  CHECK(same(dynamic::evaluate({both(leaf(x))})[0], wanted));
  both.save(folder / "monet.safetensors");
  const auto again = dynamic::load<monet_hd<>, monet_vd<>>(folder / "monet.safetensors");
  CHECK(same(dynamic::evaluate({again(leaf(x))})[0], wanted));
  CHECK(again.settings() == both.arrays().metadata);
  CHECK(again.levels() == 0);
  both.save(folder / "monet.safetensors", {.type = dtype::bfloat16});
  const auto rounded = dynamic::load<monet_hd<>, monet_vd<>>(folder / "monet.safetensors");
  CHECK(same(rounded.routing(leaf(x)).first, router.g1(x)));
  CHECK(same(rounded.routing(leaf(x)).second, router.g2(x)));
  CHECK_FALSE(same(dynamic::evaluate({rounded(leaf(x))})[0], wanted));

  CHECK(same(both.routing(leaf(x)).first, router.g1(x)));
  CHECK(same(both.routing(leaf(x)).second, router.g2(x)));
  layer.deleted = {{1, 2}, {3, 0}};
  const dynamic::layer without = both.ablated_pairs({{1, 2}}).ablated_pairs({{3, 0}});
  CHECK(same(without(leaf(x)), layer(x, router.g1(x), router.g2(x))));
  CHECK_FALSE(same(dynamic::evaluate({without(leaf(x))})[0], wanted));
  without.save(folder / "deleted.safetensors");
  const auto deleted = dynamic::load<monet_hd<>, monet_vd<>>(folder / "deleted.safetensors");
  CHECK(same(deleted(leaf(x)), layer(x, router.g1(x), router.g2(x))));
}

}  // namespace
