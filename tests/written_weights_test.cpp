// SPDX-License-Identifier: MIT
// Writes every parameter of every layer in turn, and one parameter in every way. The next evaluate
// sees the write; a compiled layer refuses to run until it is refreshed, or goes on with the old
// weights where nobody told it, and then sees it, too. A layer of fresh copies of the same elements
// is the oracle.
#include <fmoe/aoe.hpp>
#include <fmoe/cuda.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/reference.hpp>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "support/agree.hpp"
#include "support/same_bits.hpp"
#include "support/watched.hpp"

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
  CHECK(is_watched(loaded));
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
  check_writes(
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu}), 13,
      called);
  check_writes(
      load<mxd<>>(golden("mxd/mxd_mlp_gelu_skip_k4"), {.active = 4, .activation = pointwise::gelu}),
      13, called);
  check_writes(load<sparse_mlp<>>(golden("mxd/mxd_transcoder_relu"),
                                  {.active = all, .activation = pointwise::relu}),
               13, called);
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
  check_writes(load<aoe<>>(golden("aoe/aoe_kn"), {.active = 2,
                                                  .activation = pointwise::silu,
                                                  .metadata = {{"weighting", "paper"}}}),
               11, called);
  check_writes(load<moe<>>(golden("moe/moe_odd"), {.active = 2}), 14, called);
  check_writes(load<soft_moe<>>(golden("moe/moe_dense")), 13, called);
  check_writes(load<peer<>>(golden("peer/peer_h2_n64"),
                            {.active = 4, .metadata = {{"weighting", "softmax"}}}),
               16, called);
}

// A layer of a matrix, which is packed and also read as it is, for the sums of its columns, of a
// table, of which a selection takes rows, and of a vector, which is read as it is.
template <class T>
struct selecting {
  parameter<T, 2> encoder, decoder;
  parameter<T, 1> bias;

  auto operator()(const operand_of<2> auto& x) const {
    const auto scores = einsum<"ti,if->tf">(x, encoder) + einsum<"if->f">(encoder);
    return einsum<"tf,fo->to">(top_k(scores, 2), decoder) + bias;
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"encoder", presence::required, "if"}, layer.encoder);
    visit(released_name{"decoder", presence::required, "fo"}, layer.decoder);
    visit(released_name{"bias", presence::required, "o"}, layer.bias);
  }
};

using writer = std::function<void()>;

template <class T>
void enlarge(std::span<T> elements) {
  for (T& v : elements) v = static_cast<T>(static_cast<float>(v) * 3 + 1);
}

// Writes each parameter by the span that `reach` makes of it, now.
template <class T, class Reach>
writer to_each(selecting<T>& l, const Reach& reach) {
  return [w = std::tuple(reach(l.encoder), reach(l.decoder), reach(l.bias))] {
    std::apply([](const auto&... span) { (enlarge<T>(span), ...); }, w);
  };
}

template <class T>
std::vector<T> numbers(extent count, unsigned seed) {
  const auto of = random<rows>({1, count}, seed);
  std::vector<T> all(count);
  std::transform(of.begin(), of.end(), all.begin(), [](float v) { return static_cast<T>(v); });
  return all;
}

template <class T>
selecting<T> selecting_layer() {
  return {tensor<T, 2>({7, 40}, numbers<T>(280, 1)), tensor<T, 2>({40, 5}, numbers<T>(200, 2)),
          tensor<T, 1>({5}, numbers<T>(5, 3))};
}

// The layer, made anew of its elements as they are.
template <class T>
selecting<T> anew(const selecting<T>& l) {
  const auto same = [](const auto& p) {
    return std::remove_cvref_t<decltype(p)>(tensor(p.shape(), std::span(p.data(), p.size())));
  };
  return {same(l.encoder), same(l.decoder), same(l.bias)};
}

struct expectation {
  bool is_told;                // the layer's tensors know of the write
  bool copies_see_it = false;  // a copy made before does, too
};

// Checks the rule for a way to write, which is made ready before the layer is used: the next
// evaluate reads what was written, and so does refresh(). Nothing else does.
template <class T, class Way>
void check_way(const Way& how, const expectation& expects) {
  auto layer = selecting_layer<T>();
  const auto write = how(layer);
  const auto x = random<rows>({6, 7}, 4), dy = random<rows>({6, 5}, 5);
  const std::array<compile_options, 2> elsewhere{
      {{.on = fmoe::reference()}, {.on = cuda::gpu_or_emulated()}}};
  auto forward = compile(layer, 6);
  std::array others{compile(layer, 6, elsewhere[0]), compile(layer, 6, elsewhere[1])};
  const auto copy = layer;
  const auto old = evaluate(layer(x));
  const auto e = layer(x);
  const auto step = [&] {
    if constexpr (std::is_same_v<T, bf16>) return nullptr;
    else
      return std::make_unique<decltype(compile_gradients(layer, 6))>(compile_gradients(layer, 6));
  }();
  for (int round = 0; round < 3; ++round) {
    const auto before = evaluate(layer(x)), first = others[0](x), second = others[1](x);
    CHECK(same_bits(forward(x), before));
    write();
    if (expects.is_told) {
      CHECK_THROWS_AS(forward(x), value_error);
      for (const auto& other : others) CHECK_THROWS_AS(other(x), value_error);
    } else {
      CHECK(same_bits(forward(x), before));  // with the old weights, all of them
      CHECK(same_bits(others[0](x), first));
      CHECK(same_bits(others[1](x), second));
    }
    const auto now = anew(layer);
    const auto expected = evaluate(now(x));
    CHECK(!same_bits(expected, before));
    CHECK(same_bits(evaluate(layer(x)), expected));
    CHECK(same_bits(evaluate(e), expected));
    forward.refresh();
    CHECK(same_bits(forward(x), expected));
    for (std::size_t k = 0; k < others.size(); ++k) {
      others[k].refresh();
      CHECK(same_bits(others[k](x), compile(now, 6, elsewhere[k])(x)));
      CHECK(same_bits(evaluate(layer(x), elsewhere[k]), others[k](x)));
    }
    CHECK(same_bits(compile(layer, 6)(x), expected));

    if constexpr (!std::is_same_v<T, bf16>) {
      step->refresh();
      using result = tensor<T, 2>;
      result of_step({6, 5}), dx({6, 7}), of_now({6, 5}), dx_of_now({6, 7});
      (*step)(x, dy, of_step, dx);
      compile_gradients(now, 6)(x, dy, of_now, dx_of_now);
      CHECK(same_bits(of_step, of_now));
      CHECK(same_bits(dx, dx_of_now));
    }
  }
  CHECK(same_bits(evaluate(copy(x)), old) == !expects.copies_see_it);
}

constexpr auto whole = [](auto& p) { return std::span(p.data(), p.size()); };

// Returns a way that writes the parameters of a layer by spans that were made before.
template <class T, class Reach>
auto held(const Reach& reach) {
  return [reach](selecting<T>& l) { return to_each(l, reach); };
}

// Returns a way that gives the layer, each time, the weights of another one: assign(layer, other).
template <class T, class Assign>
auto assigned(const Assign& assign) {
  return [assign](selecting<T>& l) -> writer {
    return [&l, assign] {
      auto other = anew(l);
      to_each(other, whole)();
      assign(l, other);
    };
  };
}

// The parameters borrow vectors, which are written.
template <class T, class Element>
writer borrowed(selecting<T>& l) {
  auto v = std::make_shared<std::array<std::vector<T>, 3>>(
      std::array{numbers<T>(280, 1), numbers<T>(200, 2), numbers<T>(5, 3)});
  l.encoder = borrow(std::span<Element>((*v)[0]), {7, 40});
  l.decoder = borrow(std::span<Element>((*v)[1]), {40, 5});
  l.bias = borrow(std::span<Element>((*v)[2]), {5});
  return [v] {
    for (std::vector<T>& of : *v) enlarge<T>(of);
  };
}

template <class T>
void check_ways() {
  SECTION("a pointer that was taken before") { check_way<T>(held<T>(whole), {false}); }
  SECTION("an iterator that was taken before") {
    check_way<T>(held<T>([](auto& p) { return std::span<T>(p.begin(), p.end()); }), {false});
  }
  SECTION("the address of an element") {
    const auto first = [](auto& p) {
      if constexpr (std::remove_reference_t<decltype(p)>::rank == 2) return &p(0, 0);
      else return &p(0);
    };
    check_way<T>(held<T>([=](auto& p) { return std::span<T>(first(p), p.size()); }), {false});
  }
  SECTION("a pointer that was taken while a copy had the same elements") {
    const auto after_a_copy = [](selecting<T>& l) {
      const auto copy = l;
      return to_each(l, whole);
    };
    check_way<T>(after_a_copy, {false});
  }
  SECTION("a pointer, and one parameter is told") {
    const auto telling = [](selecting<T>& l) -> writer {
      return [&l, write = to_each(l, whole)] {
        write();
        l.bias.written();
      };
    };
    check_way<T>(telling, {true});
  }
  SECTION("a pointer that is taken each time") {
    check_way<T>([](selecting<T>& l) -> writer { return [&l] { to_each(l, whole)(); }; }, {true});
  }
  SECTION("an assignment of a layer") {
    check_way<T>(assigned<T>([](auto& l, auto& other) { l = other; }), {true});
  }
  SECTION("a move of a layer") {
    check_way<T>(assigned<T>([](auto& l, auto& other) { l = std::move(other); }), {true});
  }
  SECTION("a vector that is borrowed") { check_way<T>(borrowed<T, T>, {false, true}); }
  SECTION("a vector that is borrowed as const") {
    check_way<T>(borrowed<T, const T>, {false, true});
  }
  SECTION("a vector that is borrowed, and one parameter is told") {
    const auto telling = [](selecting<T>& l) -> writer {
      return [&l, write = borrowed<T, const T>(l)] {
        write();
        l.encoder.written();
      };
    };
    check_way<T>(telling, {true, true});
  }
}

TEST_CASE("a write counts, however it reaches the elements") {
  SECTION("float") { check_ways<float>(); }
  SECTION("double") { check_ways<double>(); }
  SECTION("bf16") { check_ways<bf16>(); }
}

TEST_CASE("a layer that does not keep its weights holds none that it has packed") {
  auto layer = std::make_optional(
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu}));
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

  const auto on_reference = compile(
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu}), 3,
      {.on = fmoe::reference(), .keep_weights = false});
  CHECK(on_reference(x).shape() == y.shape());
}

TEST_CASE("a copy of a layer is a layer of its own") {
  const auto layer =
      load<mxd<>>(golden("mxd/mxd_glu_silu_k4"), {.active = 4, .activation = pointwise::silu});
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
