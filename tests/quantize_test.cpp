// SPDX-License-Identifier: MIT
// Layers with weights of 8 bits. The oracle of each is the layer of floats that has the widened
// weights: all bits are the same. A second one checks the weights themselves: they are the
// multiples of their scale that are nearest to the original ones.
#include <fmoe/quantize.hpp>

#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/io/checkpoint.hpp>
#include <fmoe/io/layers_in.hpp>
#include <fmoe/io/quantized_arrays.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/reference.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "support/agree.hpp"
#include "support/files.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;
using counts = std::initializer_list<extent>;

template <extent Rank>
bool same_bits(const tensor<float, Rank>& a, const tensor<float, Rank>& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Returns the layer of floats that has the widened weights, by a file and not by the library's own
// widening in registers.
template <class Floats, class Quantized>
Floats widened_layer(const Quantized& layer) {
  const temporary_folder folder;
  save(layer, folder / "quantized.safetensors");
  return load<Floats>(folder / "quantized.safetensors");
}

// Checks one layer in both formats, for few and many rows, in one call and compiled; `forward`
// makes its output.
template <class Q, class Layer, class Forward>
void check_format(const Layer& layer, extent width, const Forward& forward) {
  const auto small = quantize<Q>(layer);
  const Layer wide = widened_layer<Layer>(small);
  extent quantized = 0, floats = 0;
  auto original = layer;
  auto copy = small;
  const auto given = detail::released_parameters(original);
  for (extent i = 0; const auto& p : detail::released_parameters(copy)) {
    const detail::any_tensor value = p.parameter.value(), from = given[i++].parameter.value();
    REQUIRE(value.empty() == from.empty());
    if (value.empty()) continue;
    REQUIRE(value.shape == from.shape);
    (value.type == detail::dtype_of<Q> ? quantized : floats) += 1;
    const bool stays = value.shape.size() == 1 || !p.name.rounded;
    CHECK(stays == (value.type == dtype::float32));
  }
  CHECK(quantized > 0);
  for (const extent n : counts{1, 2, 5, 9, 30, 70}) {
    const auto x = random<rows>({n, width}, static_cast<unsigned>(n));
    INFO(n << " rows");
    const auto y = evaluate(forward(small, x));
    CHECK(same_bits(y, evaluate(forward(wide, x))));
    const auto ready = compile([&](const auto& input) { return forward(small, input); }, n);
    CHECK(same_bits(ready(x), y));
    const auto plain = evaluate(forward(small, x), {.on = fmoe::reference()});
    CHECK(relative_error(y.data(), {plain.begin(), plain.end()}) < 1e-5);
  }
}

template <class Layer, class Forward>
void check(const Layer& layer, extent width, const Forward& forward) {
  check_format<q8>(layer, width, forward);
  check_format<q8c>(layer, width, forward);
}

constexpr auto called = [](const auto& layer, const auto& x) { return layer(x); };

std::string golden(const std::string& name) {
  return "tests/golden/" + name + ".weights.safetensors";
}

TEST_CASE("MxD of 8 bits has the bits of its widened weights") {
  check(load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu}),
        13, called);
  check(
      load<mxd<>>(golden("mxd/mxd_mlp_gelu_skip_k4"), {.active = 4, .activation = pointwise::gelu}),
      13, called);
  check(load<sparse_mlp<>>(golden("mxd/mxd_transcoder_relu"),
                           {.active = all, .activation = pointwise::relu}),
        13, called);
}

TEST_CASE("a cross-layer transcoder of 8 bits has the bits of its widened weights") {
  cross_layer_transcoder<> layer;
  layer.encoder = random<rows>({32, 64}, 1);
  layer.encoder_bias = random<tensor<float, 1>>({64}, 2);
  layer.decoder = random<tensor<float, 3>>({64, 3, 32}, 3);
  layer.skip = random<rows>({32, 32}, 4);
  layer.bias = random<tensor<float, 1>>({32}, 5);
  layer.threshold = random<tensor<float, 1>>({64}, 6);
  check(layer, 32, called);
}

TEST_CASE("muMoE of 8 bits has the bits of its widened weights") {
  check(load<mumoe<cp_experts<2>>>(golden("mumoe/cp_e2_entmax_ln_bias_iln_odd")), 13, called);
  check(load<mumoe<tr_experts<2>>>(golden("mumoe/tr_e2_entmax_none_bias_odd")), 13, called);
  check(load<mumoe<dense_experts<1>>>(golden("mumoe/dense_e1_entmax_bn_bias")), 13, called);
}

TEST_CASE("Monet of 8 bits has the bits of its widened weights") {
  const load_options of_layer{.activation = pointwise::gelu};
  for (const std::string& file :
       {golden("monet/monet_hd_topk_t1"), golden("monet/monet_vd_topk_kS")}) {
    auto router = load<monet_router<>>(file, {.active = 3});
    router.heads = 3;
    const auto small = quantize(router);
    CHECK(small.heads == 3);
    CHECK(small.active == 3);
    check(router, 14, [](const auto& r, const auto& x) {
      return einsum<"tps->ts">(r(x));  // a matrix
    });
    const auto routed = [&](const auto& l, const auto& x) {
      return l(x, router.g1(x), router.g2(x));
    };
    const auto check_layer = [&](auto layer) {
      layer.heads = 3;  // compile asks for them
      check(layer, 14, routed);
    };
    if (file.find("hd") != std::string::npos) check_layer(load<monet_hd<>>(file, of_layer));
    else check_layer(load<monet_vd<>>(file, of_layer));
  }
}

TEST_CASE("mixtures of 8 bits have the bits of their widened weights") {
  check(load<aoe<>>(
            golden("aoe/aoe_kn"),
            {.active = 2, .activation = pointwise::silu, .metadata = {{"weighting", "paper"}}}),
        11, called);
  check(load<moe<>>(golden("moe/moe_odd"), {.active = 2}), 14, called);
  check(load<soft_moe<>>(golden("moe/moe_dense")), 13, called);
  check(load<peer<>>(golden("peer/peer_h2_n64"),
                     {.active = 4, .metadata = {{"weighting", "softmax"}}}),
        16, called);
}

// Returns weights with a few large ones, which widen the scales of their blocks.
template <std::size_t Rank>
tensor<float, Rank> weights(const std::array<std::size_t, Rank>& shape, unsigned seed) {
  auto w = random<tensor<float, Rank>>(shape, seed);
  for (std::size_t i = 0; i < w.size(); i += 97) w.data()[i] *= 30;
  return w;
}

mxd<> large_mxd() {
  mxd<> layer;
  layer.encoder = weights<2>({300, 290}, 1);
  layer.gate = weights<2>({300, 700}, 2);
  layer.gate_bias = weights<1>({700}, 3);
  layer.scales = weights<2>({700, 96}, 4);
  layer.decoder = weights<2>({290, 96}, 5);
  layer.bias = weights<1>({96}, 6);
  layer.active = 7;
  return layer;
}

TEST_CASE("a wide MxD of 8 bits has the bits of its widened weights, screened or not") {
  check(large_mxd(), 300, called);
  for (const bool screen : {false, true})
    for (const extent n : counts{1, 3, 12, 13, 100}) {
      const auto small = quantize(large_mxd());
      const auto wide = widened_layer<mxd<>>(small);
      const auto x = random<rows>({n, 300}, 9);
      const compile_options how{.screen = screen};
      CHECK(same_bits(evaluate(small(x), how), evaluate(wide(x), how)));
    }
}

TEST_CASE("mixtures of wide experts of 8 bits have the bits of their widened weights") {
  aoe<> layer;
  layer.down = weights<3>({80, 9, 40}, 1);
  layer.up = weights<3>({9, 40, 130}, 2);
  layer.linear = weights<3>({9, 80, 130}, 3);
  layer.output = weights<3>({9, 130, 80}, 4);
  layer.route.active = 3;
  check(layer, 80, called);
}

// Checks along which axis the blocks of each parameter lie.
template <class Layer>
void check_axes(const Layer& layer, const std::vector<extent>& expected) {
  auto small = quantize(layer);
  std::vector<extent> axes;
  for (const auto& p : detail::released_parameters(small))
    if (const auto value = p.parameter.value(); value.type == dtype::q8)
      if (!value.empty()) axes.push_back(detail::axis_of_blocks(value));
  CHECK(axes == expected);
}

TEST_CASE("blocks lie along the axis that a product sums over, or along the rows of a table") {
  check_axes(large_mxd(), {0, 0, 1, 0});  // encoder, gate, scales, decoder
  check_axes(load<moe<>>(golden("moe/moe_odd"), {.active = 2}), {1, 1, 1});
  check_axes(load<mumoe<dense_experts<1>>>(golden("mumoe/dense_e1_entmax_bn_bias")), {0, 1});
  // 4 of 64 experts are a product with all of them.
  check_axes(load<peer<>>(golden("peer/peer_h2_n64"),
                          {.active = 4, .metadata = {{"weighting", "softmax"}}}),
             {1, 0});
  auto monet = load<monet_hd<>>(golden("monet/monet_hd_topk_t1"), {.activation = pointwise::gelu});
  check_axes(monet, {0, 0, 0});
}

TEST_CASE("a sum over more than a block, in chunks and in blocks of any length") {
  const parameter<float, 2> w = weights<2>({1000, 70}, 1);
  const auto check_sum = [&]<class Q>(Q) {
    const parameter<Q, 2> small = quantized<Q>(w, 0);
    const parameter<float, 2> wide = widened(small);
    const auto product = [](const auto& p) {
      return [&p](const auto& x) { return einsum<"ti,io->to">(x, p); };
    };
    for (const extent n : counts{1, 2, 3, 6, 7, 13, 40, 110})
      for (const extent block : counts{7, 32, 64, 256, 512}) {
        const auto x = random<rows>({n, 1000}, static_cast<unsigned>(n));
        INFO(n << " rows, blocks of " << block);
        const compile_options how{.sum_block = block};
        CHECK(same_bits(compile(product(small), n, how)(x), compile(product(wide), n, how)(x)));
      }
  };
  check_sum(q8());
  check_sum(q8c());
}

TEST_CASE("scales that are no numbers, or negative, give the bits of the widened weights") {
  tensor<float, 2> w({64, 70});
  for (extent i = 0; i < w.size(); ++i) w.data()[i] = static_cast<float>(1 + i % 5);
  for (const float bad : {INFINITY, -INFINITY, NAN, -3.f, -0.f, 65504.f}) {
    const auto small = quantized<q8>(w, 0);
    auto* const scales = reinterpret_cast<f16*>(
        static_cast<std::byte*>(small.shared_storage()->written()) +
        detail::quantized_layout(dtype::q8, small.size(), small.blocks()).first_scale());
    scales[17] = convert<f16>(bad);
    const parameter<q8, 2> narrow = small;
    const parameter<float, 2> wide = widened(small);
    for (const extent n : counts{1, 5, 9, 30, 80}) {
      auto x = random<rows>({n, 64}, 1);
      for (float& of_x : x) of_x = std::fabs(of_x);  // sums of infinities stay infinite
      INFO(n << " rows, a scale of " << bad);
      CHECK(same_bits(evaluate(einsum<"ti,io->to">(x, narrow)),
                      evaluate(einsum<"ti,io->to">(x, wide))));
    }
  }
}

TEST_CASE("blocks along another axis than the sum's give the same bits") {
  const parameter<float, 2> w = weights<2>({64, 70}, 1);
  const parameter<q8, 2> across = quantized<q8>(w, 1);
  const parameter<float, 2> wide = widened(across);
  const auto x = random<rows>({5, 64}, 1);
  CHECK(
      same_bits(evaluate(einsum<"ti,io->to">(x, across)), evaluate(einsum<"ti,io->to">(x, wide))));
  CHECK(same_bits(evaluate(across * 1.f), evaluate(wide * 1.f)));
}

TEST_CASE("tables of selected rows may have rows of any length, and blocks along either axis") {
  for (const extent outputs : counts{96, 100, 20, 1})
    for (const extent axis : counts{0, 1}) {
      mxd<> layer = large_mxd();
      layer.scales = weights<2>({700, outputs}, 1);
      layer.decoder = weights<2>({290, outputs}, 2);
      layer.bias = {};
      auto small = quantize(layer);
      small.scales = quantized<q8>(layer.scales, axis);
      auto by_column = quantize<q8c>(layer);
      by_column.scales = quantized<q8c>(layer.scales, axis);
      const auto x = random<rows>({4, 300}, 3);
      INFO(outputs << " outputs, blocks along axis " << axis);
      CHECK(same_bits(evaluate(small(x)), evaluate(widened_layer<mxd<>>(small)(x))));
      CHECK(same_bits(evaluate(by_column(x)), evaluate(widened_layer<mxd<>>(by_column)(x))));
    }
}

TEST_CASE("weights are the nearest multiples of their block's scale") {
  const auto w = weights<3>({5, 70, 3}, 1);
  const auto small = quantized<q8>(w, 1);
  const auto column = quantized<q8c>(w, 1);
  for (extent a = 0; a < 5; ++a)
    for (extent c = 0; c < 3; ++c)
      for (extent b = 0; b < 70; ++b) {
        float most = 0, most_of_all = 0;
        for (extent k = 0; k < 70; ++k) {
          most_of_all = std::max(most_of_all, std::fabs(w(a, k, c)));
          if (k / 32 == b / 32) most = std::max(most, std::fabs(w(a, k, c)));
        }
        CHECK(std::fabs(small(a, b, c) - w(a, b, c)) <= 0.5005f * most / 127);
        CHECK(std::fabs(column(a, b, c) - w(a, b, c)) <= 0.5001f * most_of_all / 127);
      }
}

TEST_CASE("all weights at once are the weights one by one, whichever axis has the blocks") {
  const auto w = weights<3>({5, 70, 3}, 1);
  for (const extent axis : counts{0, 1, 2}) {
    const auto small = quantized<q8>(w, axis);
    const auto wide = widened(small);
    for (extent a = 0; a < 5; ++a)
      for (extent b = 0; b < 70; ++b)
        for (extent c = 0; c < 3; ++c) CHECK(wide(a, b, c) == small(a, b, c));
  }
}

TEST_CASE("files of 8-bit weights: what they hold, and what is refused") {
  const temporary_folder folder;
  const auto file = folder / "small.safetensors";
  const auto small = quantize(large_mxd());
  save(small, file, {.prefix = "layer."});
  const auto weights = io::safetensors::read(file);
  const io::array gate = weights.at("layer.gate"), scale = weights.at("layer.gate.scale");
  CHECK(gate.type() == io::element_type::i8);
  CHECK(gate.shape() == std::vector<extent>{700, 300});  // the file's order
  CHECK(scale.type() == io::element_type::f16);
  CHECK(scale.shape() == std::vector<extent>{700, 10});
  CHECK(weights.at("layer.gate_bias").type() == io::element_type::f32);
  const auto integers = gate.integers<int>();
  const auto scales = scale.get<float, 2>();
  for (const extent n : counts{0, 333, 699})
    for (const extent i : counts{0, 31, 32, 299})
      CHECK(static_cast<float>(integers[n * 300 + i]) * scales(n, i / 32) == small.gate(i, n));

  std::vector<std::string> extra;
  const load_options options{.prefix = "layer.", .extra = &extra};
  const auto again = load<mxd<q8>>(file, options);
  CHECK(extra.empty());
  CHECK(again.active == small.active);
  const auto x = random<rows>({3, 300}, 1);
  CHECK(same_bits(evaluate(again(x)), evaluate(small(x))));
  CHECK(load<mxd<double>>(file, options).gate(299, 699) ==
        static_cast<double>(small.gate(299, 699)));
  CHECK_THROWS_AS(load<mxd<q8c>>(file, options), io::error);
  CHECK_THROWS_AS(load<mxd<bf16>>(file, options), io::error);           // it would round
  const auto found = io::layers_in<mxd<>>(io::checkpoint::open(file));  // reads headers only
  REQUIRE(found.size() == 1);
  CHECK(found[0].prefix == "layer.");
  const auto from_checkpoint = io::checkpoint::open(file);
  CHECK(same_bits(evaluate(load<mxd<q8>>(from_checkpoint, {.prefix = "layer."})(x)),
                  evaluate(small(x))));
  const io::array outline =
      io::array::outline(io::element_type::i8, {extent{1} << 45, 64}, "w", nullptr);
  const io::array of_scales =
      io::array::outline(io::element_type::f16, {extent{1} << 45, 2}, "w.scale", nullptr);
  CHECK(io::quantized_from(outline, of_scales, outline.shape())->elements->data() == nullptr);
  save(large_mxd(), file);
  CHECK_THROWS_AS(load<mxd<q8>>(file), io::error);
  CHECK_THROWS_AS(save(large_mxd(), file, {.type = dtype::q8}), io::error);
  save(small, file, {.type = dtype::float32});
  CHECK(same_bits(evaluate(load<mxd<>>(file)(x)), evaluate(small(x))));

  io::arrays_by_name arrays;
  for (const io::array& a : weights.arrays()) arrays.emplace(a.name(), a);
  arrays.insert_or_assign("layer.gate.scale", io::array(tensor<float, 2>({700, 9})));
  io::safetensors::write(file, arrays);
  CHECK_THROWS_AS(load<mxd<q8>>(file, options), io::error);
  arrays.erase("layer.gate.scale");
  io::safetensors::write(file, arrays);
  CHECK_THROWS_AS(load<mxd<q8>>(file, options), io::error);
}

TEST_CASE("8 bits hold zeros, tiny weights and none; not what is not finite or too large") {
  tensor<float, 2> w({40, 2});
  CHECK(widened(quantized<q8>(w, 0))(3, 1) == 0);
  w(0, 0) = 1e-30f;
  CHECK(widened(quantized<q8>(w, 0))(0, 0) == 0);  // below f16's least scale
  CHECK(std::fabs(widened(quantized<q8c>(w, 0))(0, 0) - 1e-30f) < 1e-36f);
  w(0, 0) = 1e7f;
  CHECK_THROWS_AS(quantized<q8>(w, 0), value_error);
  CHECK(widened(quantized<q8c>(w, 0))(0, 0) == 1e7f);
  w(0, 0) = NAN;
  CHECK_THROWS_AS(quantized<q8c>(w, 0), value_error);
  CHECK_THROWS_AS(quantized<q8>(w, 2), value_error);
  CHECK(quantized<q8>(tensor<float, 2>(), 0).empty());
  CHECK(quantized<q8>(tensor<float, 2>({0, 4}), 0).size() == 0);
}

TEST_CASE("weights stay in 8 bits when a layer is compiled, and explain and cost say so") {
  const auto layer = large_mxd();
  const auto x = random<rows>({1, 300}, 1);
  const auto small = quantize(layer);
  const auto by_column = quantize<q8c>(layer);
  const compile_options how{.screen = false};
  const auto wide_memory = explain(layer(x), how).memory, memory = explain(small(x), how).memory;
  // Floats have 4 bytes, and 32 weights of 8 bits 34.
  CHECK(static_cast<double>(memory.weights) < 0.28 * static_cast<double>(wide_memory.weights));
  CHECK(static_cast<double>(memory.packed) < 0.45 * static_cast<double>(wide_memory.packed));
  CHECK(explain(by_column(x), how).memory.packed < memory.packed);
}

TEST_CASE("a trained layer of 8 bits is near the exact one") {
  const auto layer = load<mxd<>>("examples/data/minilm_l3_mxd_bf16.safetensors");
  const auto x =
      io::safetensors::read("examples/data/minilm_l3_rows.safetensors").get<float, 2>("x");
  const auto exact = evaluate(layer(x));
  const auto error_of = [&](const auto& small) {
    const auto missed = evaluate(norm(row_norm::l2, small(x) - exact)),
               whole = evaluate(norm(row_norm::l2, exact));
    double sum = 0;
    for (extent t = 0; t < whole.size(); ++t) sum += static_cast<double>(missed(t) / whole(t));
    return sum / static_cast<double>(whole.size());
  };
  // docs/performance.md has these errors, of 1.5 and 2.4%.
  const double by_block = error_of(quantize(layer)), by_column = error_of(quantize<q8c>(layer));
  CHECK((by_block > 0.012 && by_block < 0.018));
  CHECK((by_column > 0.02 && by_column < 0.029));
}

TEST_CASE("a layer of 8 bits is a value: a new weight counts after refresh") {
  auto layer = quantize(large_mxd());
  const auto x = random<rows>({3, 300}, 1);
  auto ready = compile(layer, 3);
  const rows before = ready(x);
  const auto copy = layer;
  layer.decoder = quantized<q8>(weights<2>({290, 96}, 77), 0);
  CHECK(same_bits(evaluate(copy(x)), before));
  CHECK_THROWS_AS(ready(x), value_error);
  ready.refresh();
  const rows after = ready(x);
  CHECK(!same_bits(after, before));
  CHECK(same_bits(after, evaluate(widened_layer<mxd<>>(layer)(x))));

  layer.decoder =
      quantized<q8>(weights<2>({290, 96}, 78), 1);  // other elements, as of another shape
  CHECK(same_bits(ready(x), after));
}

}  // namespace
