// SPDX-License-Identifier: MIT
// Gradients of layers: the same bits for any threads, tiles and calls; sums over calls; what is
// refused.
#include <fmoe/aoe.hpp>
#include <fmoe/cost.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>
#include <fmoe/peer.hpp>
#include <fmoe/quantize.hpp>
#include <fmoe/reference.hpp>

#include "../support/allocations.hpp"
#include "../support/autonomous.hpp"
#include "../support/catch.hpp"
#include "../support/limits.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"
#include "../support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 24, hidden = 40, experts = 70, outputs = 20, tokens = 700;
constexpr extent few = 270;  // tokens, of two blocks, for the reference backend

template <class T = float>
mxd<T> decoders() {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({inputs, hidden}, 1, 0.3f);
  l.encoder_bias = random<parameter<T, 1>>({hidden}, 2, 0.3f);
  l.gate = random<parameter<T, 2>>({inputs, experts}, 3, 0.3f);
  l.gate_bias = random<parameter<T, 1>>({experts}, 4, 0.3f);
  l.scales = random<parameter<T, 2>>({experts, outputs}, 5, 0.3f);
  l.decoder = random<parameter<T, 2>>({hidden, outputs}, 6, 0.3f);
  l.bias = random<parameter<T, 1>>({outputs}, 7, 0.3f);
  l.active = 4;
  return l;
}

cp_mumoe<1> multilinear() {
  cp_mumoe<1> l;
  l.gate.projections = {random<parameter<float, 2>>({inputs, 12}, 1, 0.3f)};
  l.experts.experts = {random<parameter<float, 2>>({12, 9}, 2)};
  l.experts.input = random<parameter<float, 2>>({inputs + 1, 9}, 3, 0.3f);
  l.experts.output = random<parameter<float, 2>>({outputs, 9}, 4);
  return l;
}

tensor<float, 2> some(const tensor<float, 2>& x, extent first, extent count) {
  const extent columns = x.shape()[1];
  return {{count, columns}, std::span<const float>(x.data() + first * columns, count * columns)};
}

// Mixtures whose tokens select few of the experts.
moe<> mixture(weighting weights = weighting::softmax) {
  moe<> l;
  l.route.weights = weights;
  l.router = random<parameter<float, 2>>({inputs, 12}, 1, 0.3f);
  l.activated = random<parameter<float, 3>>({12, inputs, 9}, 2, 0.3f);
  l.linear = random<parameter<float, 3>>({12, inputs, 9}, 3, 0.3f);
  l.output = random<parameter<float, 3>>({12, 9, inputs}, 4, 0.3f);
  return l;
}
aoe<> autonomous_mixture(weighting weights = weighting::softmax) {
  aoe<> l;
  l.route.weights = weights;
  l.down = random<parameter<float, 3>>({inputs, 12, 5}, 1, 0.3f);
  l.up = random<parameter<float, 3>>({12, 5, 9}, 2, 0.3f);
  l.linear = random<parameter<float, 3>>({12, inputs, 9}, 3, 0.3f);
  l.output = random<parameter<float, 3>>({12, 9, inputs}, 4, 0.3f);
  return l;
}
peer<> retrieval(extent tables) {
  peer<> l;
  l.queries = random<parameter<float, 2>>({inputs, 2 * 2 * 6}, 1, 0.3f);
  l.keys = random<parameter<float, 4>>({2, 11, 2, 6}, 2, 0.3f);
  l.down = random<parameter<float, 2>>({tables * 121, inputs}, 3, 0.3f);
  l.up = random<parameter<float, 2>>({tables * 121, inputs}, 4, 0.3f);
  l.active = 3;
  return l;
}

template <class A, class B>
bool same_parameters(A& a, B& b) {
  const auto left = released_parameters(a), right = released_parameters(b);
  for (extent i = 0; i < left.size(); ++i) {
    const any_tensor x = left[i].parameter.value(), y = right[i].parameter.value();
    if (x.shape != y.shape || x.empty() != y.empty()) return false;
    if (!x.empty() && std::memcmp(x.elements->data(), y.elements->data(), x.numbers().bytes()) != 0)
      return false;
  }
  return true;
}

template <class Layer>
struct passes {
  tensor<float, 2> y, dx;
  Layer parameters;

  bool operator==(const passes& o) const {
    Layer mine = parameters, others = o.parameters;  // copies share their weights
    return same_bits(y, o.y) && same_bits(dx, o.dx) && same_parameters(mine, others);
  }
};

template <class Layer>
passes<Layer> of(const Layer& layer, const tensor<float, 2>& x, const tensor<float, 2>& dy,
                 const compile_options& options = {}) {
  auto g = gradients(layer, x, dy, options);
  return {std::move(g.y), std::move(g.dx), std::move(g.parameters)};
}

const auto x = random<tensor<float, 2>>({tokens, inputs}, 8),
           all_dy = random<tensor<float, 2>>({tokens, inputs}, 9),
           dy = random<tensor<float, 2>>({tokens, outputs}, 9);

// A gradient of y, as wide as the outputs of a layer.
template <class Layer>
const tensor<float, 2>& dy_of(const Layer&) {
  constexpr bool is_square =
      requires(const Layer& l) { l.route; } || requires(const Layer& l) { l.keys; };
  return is_square ? all_dy : dy;
}

TEST_CASE("the gradients of a layer are those of its expressions", "[gradients]") {
  const auto l = decoders<double>();
  const auto in = random<tensor<double, 2>>({30, inputs}, 8),
             out = random<tensor<double, 2>>({30, outputs}, 9);
  const auto g = gradients(l, in, out);
  CHECK(same_bits(g.y, evaluate(l(in))));
  const auto is_near = [](const auto& a, const auto& b) {
    CHECK(a.shape() == b.shape());
    return relative_error(a.data(), std::vector<double>(b.data(), b.data() + b.size())) < 1e-14;
  };
  CHECK(is_near(g.dx, evaluate(gradient(l(in), in, out))));
  CHECK(is_near(g.parameters.encoder, evaluate(gradient(l(in), l.encoder, out))));
  CHECK(is_near(g.parameters.gate_bias, evaluate(gradient(l(in), l.gate_bias, out))));
  const auto [y, dscales, dbias] =
      evaluate(std::tuple(l(in), gradient(l(in), l.scales, out), gradient(l(in), l.bias, out)));
  CHECK(same_bits(y, g.y));
  CHECK(is_near(g.parameters.scales, dscales));
  CHECK(is_near(g.parameters.bias, dbias));
  CHECK(
      is_near(evaluate(gradient(l(in), l.hidden(in), out)),
              evaluate(gradient(l.decoded(l.hidden(in), l.coefficients(in)), l.hidden(in), out))));
}

// The reference backend makes all numbers of the rows, where the CPU makes those that were
// selected.
TEST_CASE("the reference backend makes the same gradients", "[gradients]") {
  const auto check = [](auto layer) {
    const auto in = some(x, 0, few), out = some(dy_of(layer), 0, few);
    auto ours = of(layer, in, out), plain = of(layer, in, out, {.on = reference()});
    const auto left = released_parameters(ours.parameters),
               right = released_parameters(plain.parameters);
    for (extent i = 0; i < left.size(); ++i) {
      const any_tensor a = left[i].parameter.value(), b = right[i].parameter.value();
      if (a.empty()) continue;
      INFO(left[i].name.name);
      std::vector<double> expected(element_count(a.shape));
      copy_numbers(b.numbers(), expected.data());
      CHECK(relative_error(static_cast<const float*>(a.elements->data()), expected) <= 4e-6);
    }
  };
  check(decoders());
  check(multilinear());
  check(mixture());
  check(autonomous_mixture());
  for (const weighting w : {weighting::score, weighting::softmax_of_all}) {
    check(mixture(w));
    check(autonomous_mixture(w));
  }
  check(retrieval(1));
  check(retrieval(2));
}

#ifndef FMOE_JTHREAD_EXECUTOR
TEST_CASE("gradients have the same bits for any threads and tiles", "[gradients]") {
  const auto check = [](const auto& layer) {
    auto first = of(layer, x, dy_of(layer));
    CHECK(same_bits(first.y, evaluate(layer(x))));
    for (const auto& [threads, tile] : {std::pair(1, extent{24}),
                                        {1, extent{96}},
                                        {2, extent{1}},
                                        {2, extent{96}},
                                        {4, extent{24}}})
      on_threads(threads, [&, tile = tile] {
        INFO("tiles of " << tile);
        planner::plan_options limits;
        limits.shape.tile = tile;
        limits.shape.streamed = tile == 24 ? 1 << 10 : limits.shape.streamed;
        auto again = of(layer, x, dy_of(layer), limited<float>(limits));
        CHECK(first == again);
      });
  };
  check(decoders());
  check(multilinear());
  check(mixture());
  check(autonomous_mixture());
  check(mixture(weighting::score));
  check(autonomous_mixture(weighting::softmax_of_all));
  check(retrieval(1));
  check(retrieval(2));
}
#endif

TEST_CASE("gradients have the same bits for any calls of multiples of 256 tokens", "[gradients]") {
  const auto check = [](const auto& layer, extent span = 256) {
    auto whole = of(layer, x, dy_of(layer));
    auto step = compile_gradients(layer, tokens);
    CHECK(step.span() == span);
    for (const std::vector<extent>& counts : {std::vector<extent>{512, 188}, {256, 256, 188}}) {
      extent first = 0;
      for (const extent count : counts) {
        tensor<float, 2> y({count, dy_of(layer).shape()[1]}), dx({count, inputs});
        step(some(x, first, count), some(dy_of(layer), first, count), y, dx, first > 0);
        CHECK(same_bits(y, some(whole.y, first, count)));
        CHECK(same_bits(dx, some(whole.dx, first, count)));
        first += count;
      }
      CHECK(same_parameters(step.gradients(), whole.parameters));
    }
  };
  check(decoders(), tokens);
  check(multilinear());
  check(mixture(), tokens);
  check(autonomous_mixture(), tokens);
  check(retrieval(1), tokens);
  check(retrieval(2), tokens);
}

// Scores whose softmax is 0 in float, and scores of 0, are selected as others are. Float rounds
// scores as large as these by 1e-4.
TEST_CASE("weights of 0 keep their places among the selected experts", "[gradients]") {
  auto far = mixture();
  far.route.active = 3;
  for (float& w : far.router) w *= 400;
  auto plain = mixture(weighting::score);
  for (extent i = 0; i < inputs; ++i)
    for (extent n = 0; n < 12; n += 2) plain.router(i, n) = -std::abs(plain.router(i, n));
  tensor<float, 2> rows = some(x, 0, few);
  const tensor<float, 2> slopes = some(all_dy, 0, few);
  for (extent i = 0; i < rows.size(); ++i) rows.data()[i] = std::abs(rows.data()[i]);
  for (extent i = 0; i < 40 * inputs; ++i) rows.data()[i] = 0;
  for (const auto& layer : {far, plain}) {
    auto ours = of(layer, rows, slopes), all = of(layer, rows, slopes, {.on = reference()});
    CHECK(same_bits(ours.y, evaluate(layer(rows))));
    const std::vector<double> dx(all.dx.data(), all.dx.data() + all.dx.size()),
        up(all.parameters.output.data(),
           all.parameters.output.data() + all.parameters.output.size()),
        router(all.parameters.router.data(),
               all.parameters.router.data() + all.parameters.router.size());
    CHECK(relative_error(ours.dx.data(), dx) <= 2e-4);
    CHECK(relative_error(ours.parameters.output.data(), up) <= 2e-4);
    CHECK(relative_error(ours.parameters.router.data(), router) <= 2e-4);
  }
}

TEST_CASE("dy may follow from y and a target", "[gradients]") {
  const auto layer = decoders();
  const auto target = random<tensor<float, 2>>({tokens, outputs}, 11);
  tensor<float, 2> y({tokens, outputs}), dx({tokens, inputs}), slope({tokens, outputs});
  auto step = compile_gradients(layer, tokens,
                                [](const auto& made, const auto& t) { return 0.5 * (made - t); });
  step(x, target, y, dx);
  for (extent i = 0; i < y.size(); ++i) slope.data()[i] = 0.5f * (y.data()[i] - target.data()[i]);
  auto expected = of(layer, x, slope);
  CHECK(same_bits(y, expected.y));
  CHECK(same_bits(dx, expected.dx));
  CHECK(same_parameters(step.gradients(), expected.parameters));
}

TEST_CASE("the gradients of several spans are sums over all tokens", "[gradients]") {
  const auto layer = decoders();
  const auto g = of(layer, x, dy);
  const auto is_near = [](const auto& a, const auto& b) {
    return relative_error(a.data(), std::vector<double>(b.data(), b.data() + b.size())) <= 2e-6;
  };
  CHECK(is_near(g.parameters.decoder, evaluate(gradient(layer(x), layer.decoder, dy))));
  CHECK(is_near(g.parameters.gate, evaluate(gradient(layer(x), layer.gate, dy))));
  CHECK(is_near(g.parameters.bias, evaluate(gradient(layer(x), layer.bias, dy))));
}

TEST_CASE("gradients follow weights that changed, and allocate nothing", "[gradients]") {
  auto layer = decoders();
  auto step = compile_gradients(layer, tokens);
  tensor<float, 2> y({tokens, outputs}), dx({tokens, inputs});
  step(x, dy, y, dx);
  CHECK(allocates_nothing([&] { step(x, dy, y, dx, true); }));
  CHECK(allocates_nothing([&] { step(x, dy, y, dx); }));
  for (float& w : layer.decoder) w *= 1.5f;
  CHECK_THROWS_WITH(step(x, dy, y, dx),
                    "[gradients] a weight may have been written since the layer was compiled: call "
                    "refresh() before the next call");
  CHECK(allocates_nothing([&] {
    layer.decoder(0, 0) *= 1.5f;
    for (float& w : layer.gate) w *= 1.01f;
    step.refresh();
  }));
  step(x, dy, y, dx);
  auto expected = of(layer, x, dy);
  CHECK(same_bits(y, expected.y));
  CHECK(same_bits(dx, expected.dx));
  CHECK(same_parameters(step.gradients(), expected.parameters));
  const tensor<float, 2> none({0, inputs}), nothing({0, outputs});
  tensor<float, 2> no_y({0, outputs}), no_dx({0, inputs});
  step(none, nothing, no_y, no_dx, true);
  CHECK(same_parameters(step.gradients(), expected.parameters));
  step(none, nothing, no_y, no_dx);
  for (const float d : step.gradients().decoder) REQUIRE(d == 0);
}

TEST_CASE("a step explains both passes and says what they cost", "[gradients][explain]") {
  const auto layer = decoders();
  const auto step = compile_gradients(layer, tokens, {.threads = 1});
  const explanation plan = step.explain();
  INFO(plan);
  const std::string& text = plan.text;
  CHECK(text.starts_with("forward and backward, 700 tokens at a time; 0 bytes for the gradients"));
  for (const char* line :
       {"ti,ih->th", "to,ho->th", "token sum ti,th->ih", "token sum tn,to->no  ", "time: about"})
    CHECK(text.find(line) != text.npos);
  CHECK(plan.seconds > explain(layer(x), {.threads = 1}).seconds);
  CHECK(plan.memory.weights == explain(layer(x)).memory.weights);
  const step_costs costs = step.cost();
  const cost_figures alone = cost(layer(x)).factorized;
  CHECK(costs.forward.multiply_adds == alone.multiply_adds);
  CHECK(costs.forward.bytes == alone.bytes);
  CHECK(costs.both.multiply_adds > 2 * alone.multiply_adds);
  CHECK(costs.both.multiply_adds <= 3 * alone.multiply_adds);
  CHECK(costs.both.bytes >
        alone.bytes + static_cast<double>(2 * sizeof(float) * layer.gate.size()));
}

TEST_CASE("a step that runs the selected experts alone costs less than one of all", "[gradients]") {
  const auto layer = mixture();
  const step_costs costs = compile_gradients(layer, tokens).cost(),
                   dense = compile_gradients(layer, tokens, {.on = reference()}).cost();
  CHECK(costs.both.multiply_adds < 0.75 * dense.both.multiply_adds);
}

TEST_CASE("all tokens go through together where rows depend on each other", "[gradients]") {
  auto layer = autonomous<float>(inputs);
  layer.route.how = routing::by::expert_choice;
  CHECK(compile_gradients(layer, tokens).span() == tokens);
  layer.route.how = routing::by::top_k;
  layer.route.active = 2;
  CHECK(compile_gradients(layer, 5 * 256).span() == 4 * 256);
  CHECK(compile_gradients(layer, tokens).span() == tokens);
  CHECK(compile_gradients(layer, 30).span() == 30);
  CHECK(compile_gradients(decoders(), tokens).span() == tokens);
  CHECK(compile_gradients(multilinear(), tokens).span() == 256);
}

// A layer whose type does not say what it stores.
struct of_bf16 {
  parameter<bf16, 2> weight;  // i o
  auto operator()(const operand auto& in) const { return einsum<"ti,io->to">(in, weight); }
  static void released(auto& layer, auto&& visit) {
    visit({"weight", presence::required, "io"}, layer.weight);
  }
};

// The layer with its weights as floats.
template <class Narrow>
auto widened(Narrow layer) {
  typename stored_as<float, Narrow>::type wide;
  const auto from = released_parameters(layer), to = released_parameters(wide);
  for (extent i = 0; i < from.size(); ++i)
    if (!from[i].parameter.value().empty())
      to[i].parameter.assign(as_floats(from[i].parameter.value()));
  io::copy_settings(io::released_layer(layer), io::released_layer(wide));
  return wide;
}

template <class Narrow>
bool has_gradients_of_widened(Narrow layer) {
  const tensor<float, 2> slopes =
      random<tensor<float, 2>>({tokens, compile_gradients(layer, 1).outputs()}, 9);
  auto narrow = gradients(layer, x, slopes);
  auto wide = gradients(widened(layer), x, slopes);
  return *io::active_of(narrow.parameters) == *io::active_of(layer) &&
         same_bits(narrow.y, wide.y) && same_bits(narrow.dx, wide.dx) &&
         same_parameters(narrow.parameters, wide.parameters);
}

TEST_CASE("weights of 16 and of 8 bits have the gradients of the widened weights", "[gradients]") {
  CHECK(has_gradients_of_widened(decoders<bf16>()));
  CHECK(has_gradients_of_widened(decoders<f16>()));
  CHECK(has_gradients_of_widened(quantize(decoders())));
  CHECK(has_gradients_of_widened(autonomous<bf16>(inputs)));
}

TEST_CASE("a layer of bf16 is trained by masters of float", "[gradients]") {
  mxd<bf16> layer = decoders<bf16>();
  mxd<> masters = widened(layer);
  auto step = compile_gradients(layer, tokens);
  adamw narrow({.rate = 1e-3}), wide({.rate = 1e-3});
  tensor<float, 2> y({tokens, outputs}), dx(x.shape());
  for (int i = 0; i < 3; ++i) {
    step(x, dy, y, dx);
    narrow(layer, step.gradients());
    wide(masters, step.gradients());
    step.refresh();
  }
  const float* const master = std::as_const(masters.gate).data();
  bool moved = false;
  for (extent i = 0; i < layer.gate.size(); ++i) {
    REQUIRE(std::as_const(layer.gate).data()[i] == bf16(master[i]));
    moved |= float(bf16(master[i])) != master[i];
  }
  CHECK(moved);
}

TEST_CASE("gradients of a layer refuse what they cannot tell", "[gradients]") {
  mxd<float> tied = decoders();
  tied.linear = tied.encoder;
  CHECK_THROWS_WITH(compile_gradients(tied, 4),
                    "[gradients] W_enc and W_glu.weight share their elements, so their gradients "
                    "cannot be told apart: copy one of them");
  const of_bf16 fixed{random<parameter<bf16, 2>>({inputs, outputs}, 1)};
  CHECK_THROWS_WITH(compile_gradients(fixed, 4),
                    "[gradients] the gradient of weight is float32, and the layer holds bfloat16: "
                    "make the layer a template of the type of its weights");
  auto step = compile_gradients(decoders(), 4);
  tensor<float, 2> y({5, outputs}), dx({5, inputs});
  CHECK_THROWS_WITH(
      step(some(x, 0, 5), some(dy, 0, 5), y, dx),
      "[gradients] 't' is 5 and the layer is compiled for at most 4: say more to compile");
  CHECK_THROWS_WITH(step(some(x, 0, 4), some(dy, 0, 5), y, dx),
                    "[gradients] 't' is 4 in x and 5 in y");
  CHECK_THROWS_WITH(step(some(dy, 0, 4), some(dy, 0, 4), y, dx),
                    "[gradients] axis 0 of the rows of x is 20 and the layer's is 24");
}

}  // namespace
