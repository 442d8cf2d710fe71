// SPDX-License-Identifier: MIT
// Writes every parameter of every layer in turn. The next evaluate sees the write; a compiled layer
// refuses to run until it is refreshed, and then sees it, too. A layer of fresh copies of the same
// elements is the oracle.
#include <fmoe/aoe.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/reference.hpp>

#include <cstring>
#include <memory>
#include <optional>

#include "support/agree.hpp"
#include "support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;

// Returns a layer whose parameters have elements of their own, which nothing was derived from.
template <class Layer>
Layer copied(Layer layer) {
  for (const auto& p : detail::released_parameters(layer)) {
    detail::any_tensor value = p.parameter.value();
    if (value.empty()) continue;
    const extent bytes = detail::element_count(value.shape) * sizeof(float);
    auto own = std::make_shared<storage>(bytes);
    std::memcpy(own->data(), value.elements->data(), bytes);
    value.elements = own;
    p.parameter.assign(value);
  }
  return layer;
}

// Checks that a write to each parameter counts, where `forward` makes the layer's output.
template <class Layer, class Forward>
void check_writes(const Layer& loaded, extent width, const Forward& forward) {
  Layer layer = copied(loaded);
  const auto x = random<rows>({9, width}, 1);
  const auto value = [&](const Layer& l) { return evaluate(forward(l, x)); };
  auto ready = compile([&](const auto& input) { return forward(layer, input); }, 9);
  rows y = value(layer);
  extent written = 0, changed = 0;
  for (const auto& p : detail::released_parameters(layer)) {
    const detail::any_tensor weights = p.parameter.value();
    if (weights.empty()) continue;
    INFO(p.name.name);
    const rows before = value(layer);
    ready(x, y);
    REQUIRE(same_bits(y, before));

    REQUIRE(weights.type == dtype::float32);
    auto* const elements = static_cast<float*>(weights.elements->written());
    for (extent i = 0; i < detail::element_count(weights.shape); ++i)
      elements[i] = elements[i] * 1.25f + 0.02f * static_cast<float>(i % 5 + 1);

    const rows after = value(copied(layer));
    CHECK(same_bits(value(layer), after));
    CHECK_THROWS_AS(ready(x, y), value_error);
    CHECK(same_bits(y, before));
    ready.refresh();
    ready(x, y);
    CHECK(same_bits(y, after));
    ++written;
    changed += !same_bits(before, after);
  }
  CHECK(written > 1);
  CHECK(changed == written);
}

constexpr auto called = [](const auto& layer, const auto& x) { return layer(x); };

std::string golden(const std::string& name) {
  return "tests/golden/" + name + ".weights.safetensors";
}

TEST_CASE("a write to a parameter of MxD counts") {
  check_writes(load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4}), 13, called);
  check_writes(load<mxd<>>(golden("mxd/mxd_mlp_gelu_skip_k4"), {.active = 4}), 13, called);
  check_writes(load<sparse_mlp<>>(golden("mxd/mxd_transcoder_relu"), {.active = all}), 13, called);
}

TEST_CASE("a write to a parameter of muMoE counts") {
  check_writes(load<mumoe<cp_experts<2>>>(golden("mumoe/cp_e2_entmax_ln_bias_iln_odd")), 13,
               called);
  check_writes(load<mumoe<tr_experts<2>>>(golden("mumoe/tr_e2_entmax_none_bias_odd")), 13, called);
  check_writes(load<mumoe<dense_experts<1>>>(golden("mumoe/dense_e1_entmax_bn_bias")), 13, called);
}

TEST_CASE("a write to a parameter of Monet counts") {
  const load_options of_layer{.activation = pointwise::gelu};
  for (const std::string& file :
       {golden("monet/monet_hd_topk_t1"), golden("monet/monet_vd_topk_kS")}) {
    auto router = load<monet_router<>>(file, {.active = 3});
    router.heads = 3;
    const auto check = [&](const auto& layer) {
      check_writes(layer, 14,
                   [&](const auto& l, const auto& x) { return l(x, router.g1(x), router.g2(x)); });
      check_writes(router, 14,
                   [&](const auto& r, const auto& x) { return layer(x, r.g1(x), r.g2(x)); });
    };
    if (file.find("hd") != std::string::npos) check(load<monet_hd<>>(file, of_layer));
    else check(load<monet_vd<>>(file, of_layer));
  }
}

TEST_CASE("a write to a parameter of a mixture counts") {
  check_writes(load<aoe<>>(golden("aoe/aoe_kn"), {.active = 2}), 11, called);
  check_writes(load<moe<>>(golden("moe/moe_odd"), {.active = 2}), 14, called);
  check_writes(load<soft_moe<>>(golden("moe/moe_dense")), 13, called);
  check_writes(load<peer<>>(golden("peer/peer_h2_n64"), {.active = 4}), 16, called);
}

TEST_CASE("a layer that does not keep its weights holds none that it has packed") {
  auto layer = std::make_optional(load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4}));
  const auto x = random<rows>({3, 13}, 1);
  const auto y = evaluate((*layer)(x));
  const auto note = [&](const auto& p) {  // ends with the elements
    return std::weak_ptr(
        p.shared_storage()->derived("a test's", [] { return std::make_shared<const int>(1); }));
  };
  const auto encoder = note(layer->encoder), bias = note(layer->encoder_bias);
  auto keeps = std::make_optional(compile(*layer, 3));
  auto ready = compile(*layer, 3, {.keep_weights = false});
  layer.reset();
  CHECK(!encoder.expired());
  keeps.reset();
  CHECK(encoder.expired());
  CHECK(!bias.expired());  // it is read as it is
  CHECK(same_bits(ready(x), y));
  CHECK_THROWS_AS(ready.refresh(), value_error);
  CHECK(same_bits(ready(x), y));

  const auto on_reference = compile(load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4}), 3,
                                    {.on = fmoe::reference(), .keep_weights = false});
  CHECK(on_reference(x).shape() == y.shape());
}

TEST_CASE("a copy of a layer is a layer of its own") {
  const auto layer = load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4});
  const auto x = random<rows>({3, 13}, 1);
  const auto before = evaluate(layer(x));
  auto ready = compile(layer, 3);
  auto copy = layer;
  auto copy_ready = compile(copy, 3);
  copy.decoder(0, 0) = 100;
  CHECK(same_bits(ready(x), before));
  CHECK(same_bits(evaluate(layer(x)), before));

  CHECK_THROWS_AS(copy_ready(x), value_error);
  copy_ready.refresh();
  const auto after = evaluate(copied(copy)(x));
  CHECK(!same_bits(after, before));
  CHECK(same_bits(evaluate(copy(x)), after));
  CHECK(same_bits(copy_ready(x), after));

  copy.decoder = layer.decoder;  // an assignment is a write
  CHECK_THROWS_AS(copy_ready(x), value_error);
  copy_ready.refresh();
  CHECK(same_bits(copy_ready(x), before));
}

}  // namespace
