// SPDX-License-Identifier: MIT
// compile_options::bf16_products and int8_products. The kernels are compared with plain loops in
// cpu/bf16_product_test.cpp and cpu/int8_product_test.cpp; here whole plans are compared with their
// products one by one.
#include <fmoe/aoe.hpp>
#include <fmoe/explain.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/quantize.hpp>

#include "support/agree.hpp"
#include "support/same_bits.hpp"
#include "support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

using rows = tensor<float, 2>;
using counts = std::initializer_list<extent>;

template <class S>
compile_options rounding_for() {
  return {.threads = 1,
          .bf16_products = std::is_same_v<S, bf16>,
          .int8_products = std::is_same_v<S, q8>};
}

// Returns the numbers as weights of a type. The blocks of q8 lie along an axis.
template <class S, std::size_t Rank>
parameter<S, Rank> narrowed(const tensor<float, Rank>& floats, extent axis) {
  if constexpr (std::is_same_v<S, q8>) {
    return quantized<q8>(floats, axis);
  } else {
    parameter<S, Rank> w(floats.shape());
    for (extent i = 0; i < w.size(); ++i) w.data()[i] = convert<S>(floats.data()[i]);
    return w;
  }
}
template <class S, std::size_t Rank>
parameter<S, Rank> stored(const std::array<extent, Rank>& shape, unsigned seed, extent axis = 0,
                          float scale = 1) {
  return narrowed<S>(random<tensor<float, Rank>>(shape, seed, scale), axis);
}

bool has(const explanation& e, const char* part) { return e.text.find(part) != std::string::npos; }

// Compares the results of several shapes of the plan, threads and splits into calls.
template <class Layer>
void check_same_bits(const Layer& layer, const rows& x, const rows& expected,
                     const compile_options& rounding) {
  const auto [tokens, width] = x.shape();
  const extent columns = expected.shape()[1];
  for (const extent threads : counts{1, 2, 3})
    for (const extent tile : counts{5, 96})
      for (const extent streamed : counts{1, 1 << 30})
        for (const extent calls : counts{1, 3}) {
          CAPTURE(threads, tile, streamed, calls);
          compile_options how = rounding;
          how.threads = threads;
          how.shape = plan_shape{.tile = tile, .group_rows = 4, .streamed = streamed, .chunk = 256};
          const auto call = compile(layer, tokens, how);
          rows y(expected.shape());
          for (extent i = 0; i < calls; ++i) {
            const extent first = tokens * i / calls, count = tokens * (i + 1) / calls - first;
            call(borrow(std::span(x.data() + first * width, count * width), {count, width}),
                 borrow(std::span(y.data() + first * columns, count * columns), {count, columns}));
          }
          REQUIRE(same_bits(y, expected));
        }
}

TEMPLATE_TEST_CASE("two products have the bits of one after the other", "", bf16, q8) {
  constexpr extent d = 67, h = 1200, o = 40, tokens = 23;
  const auto first = stored<TestType, 2>({d, h}, 1), second = stored<TestType, 2>({h, o}, 2);
  const auto x = random<rows>({tokens, d}, 3);
  const auto hidden = [&](const auto& in) { return relu(einsum<"td,dh->th">(in, first)); };
  const auto layer = [&](const auto& in) { return einsum<"th,ho->to">(hidden(in), second); };
  const compile_options rounding = rounding_for<TestType>();
  const rows made = evaluate(hidden(x), rounding);
  const rows y = evaluate(einsum<"th,ho->to">(made, second), rounding);
  CHECK(same_bits(evaluate(layer(x), rounding), y));
  CHECK_FALSE(same_bits(evaluate(layer(x)), y));
  check_same_bits(layer, x, y, rounding);
  compile_options streamed = rounding;
  streamed.shape = plan_shape{.streamed = 1};
  const explanation text = explain(layer(x), streamed);
  CHECK(has(text, "loop h"));
  CHECK(has(text, std::is_same_v<TestType, bf16>
                      ? "a chunk of k at a time, rounds its rows to bf16"
                      : "a chunk of k at a time, rounds its rows to 8 bits"));
}

// One position of the first axis.
template <class S>
parameter<S, 2> head_of(const parameter<S, 3>& w, extent head) {
  const auto [heads, d, o] = w.shape();
  tensor<float, 2> floats({d, o});
  for (extent k = 0; k < d; ++k)
    for (extent n = 0; n < o; ++n) floats(k, n) = convert<float>(w(head, k, n));
  return narrowed<S>(floats, 0);
}

TEMPLATE_TEST_CASE("products with several positions round the rows of each", "", bf16, q8) {
  constexpr extent heads = 3, d = 45, o = 37;
  const auto w = stored<TestType, 3>({heads, d, o}, 1, 1);
  const compile_options rounding = rounding_for<TestType>();
  const auto x = random<tensor<float, 3>>({9, heads, d}, 2);
  const auto y = evaluate(einsum<"thd,hdo->tho">(x, w), rounding);
  for (extent head = 0; head < heads; ++head) {
    rows in({9, d});
    for (extent t = 0; t < 9; ++t)
      for (extent k = 0; k < d; ++k) in(t, k) = x(t, head, k);
    const auto of_head = head_of(w, head);
    const rows one = evaluate(einsum<"td,do->to">(in, of_head), rounding);
    for (extent t = 0; t < 9; ++t)
      for (extent n = 0; n < o; ++n) REQUIRE(y(t, head, n) == one(t, n));
  }
}

template <class S>
moe<S> mixture(extent n = 7, extent w = 33) {
  constexpr extent d = 45;
  moe<S> layer;
  layer.router = random<tensor<float, 2>>({d, n}, 1);
  layer.activated = stored<S, 3>({n, d, w}, 2, 1, 0.3f);
  layer.linear = stored<S, 3>({n, d, w}, 4, 1, 0.3f);
  layer.output = stored<S, 3>({n, w, d}, 5, 1, 0.3f);
  return layer;
}

// The greatest difference, as a share of the greatest number.
double distance(const auto& a, const auto& b) {
  double most = 0, least = 0;
  for (extent i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(b.data()[i])));
    least = std::max(least,
                     std::abs(static_cast<double>(a.data()[i]) - static_cast<double>(b.data()[i])));
  }
  return least / most;
}

TEMPLATE_TEST_CASE("the experts of a mixture round their rows, and have one result for any plan",
                   "", bf16, q8) {
  const auto layer = mixture<TestType>();
  const compile_options rounding = rounding_for<TestType>();
  const auto x = random<rows>({41, 45}, 7);
  const rows y = evaluate(layer(x), rounding), exact = evaluate(layer(x));
  CHECK(distance(y, exact) > 1e-4);
  CHECK(distance(y, exact) < 2e-2);
  check_same_bits(layer, x, y, rounding);
}

TEMPLATE_TEST_CASE("threads that share the experts of a tile round their rows side by side", "",
                   bf16, q8) {
  constexpr extent tokens = 120;
  const auto layer = mixture<TestType>(40, 60);
  const compile_options rounding = rounding_for<TestType>();
  const auto x = random<rows>({tokens, 45}, 7);
  const rows y = evaluate(layer(x), rounding);
  for (const extent threads : counts{2, 4})
    on_threads(static_cast<int>(threads), [&] {
      compile_options how = rounding;
      how.threads = threads;
      how.shape = plan_shape{.tile = tokens, .group_rows = 96};
      const auto shared = compile(layer, tokens, how);
      for (int run = 0; run < 20; ++run) REQUIRE(same_bits(shared(x), y));
    });
}

TEMPLATE_TEST_CASE("only products of floats with weights of the type are rounded", "", bf16, q8) {
  const compile_options rounding = rounding_for<TestType>();
  const auto x = random<rows>({12, 45}, 7);
  const auto nothing = containing("and no product of floats has such weights");
  const auto floats = mixture<float>();
  CHECK_THROWS_WITH(evaluate(floats(x), rounding), nothing);
  CHECK_THROWS_WITH(compile(floats, 12, rounding), nothing);
  const auto wide = random<tensor<double, 2>>({12, 45}, 7);
  const auto weight = stored<TestType, 2>({45, 10}, 1);
  const auto product = einsum<"td,do->to">(wide, weight);
  CHECK_THROWS_WITH(evaluate(product, rounding), nothing);
  CHECK_THROWS_WITH(explain(product, rounding), nothing);
  const auto one = einsum<"td,do->to">(x, weight);
  const auto other = relu(floats(x));
  const rows both = evaluate(concat<1>(one, other), rounding);
  CHECK(same_bits(both, evaluate(concat<1>(evaluate(one, rounding), evaluate(other)))));
  compile_options halves = rounding;
  halves.sum_block = 5;
  CHECK_THROWS_AS(evaluate(product, halves), value_error);
}

TEST_CASE("blocks of q8 that do not lie along k leave rows as they are") {
  const auto x = random<rows>({12, 64}, 7);
  const compile_options rounding = rounding_for<q8>();
  const auto w = stored<q8, 2>({64, 96}, 1, 1);
  const auto product = einsum<"td,do->to">(x, w);
  CHECK_FALSE(has(explain(product, rounding), "rounds"));
  CHECK(same_bits(evaluate(product, rounding), evaluate(product)));
  const auto heads = random<tensor<float, 3>>({12, 2, 32}, 7);
  const auto along = stored<q8, 3>({2, 32, 96}, 1, 1), across = stored<q8, 3>({2, 40, 96}, 1, 1);
  CHECK(has(explain(einsum<"thd,hdo->to">(heads, along), rounding), "rounds its rows to 8 bits"));
  CHECK_FALSE(has(
      explain(einsum<"thd,hdo->to">(random<tensor<float, 3>>({12, 2, 40}, 7), across), rounding),
      "rounds"));
}

TEST_CASE("weights that are multiplied with each other are not rounded") {
  const auto first = stored<bf16, 2>({45, 30}, 1), second = stored<bf16, 2>({30, 10}, 2);
  const auto product = einsum<"td,dh,ho->to">(random<rows>({12, 45}, 7), first, second);
  compile_options naive = rounding_for<bf16>(), exact;
  naive.naive = exact.naive = true;
  const auto once = einsum<"td,do->to">(random<rows>({12, 40}, 8), stored<bf16, 2>({40, 10}, 3));
  const rows both = evaluate(concat<1>(product, once), naive);
  CHECK(same_bits(
      both, evaluate(concat<1>(evaluate(product, exact), evaluate(once, rounding_for<bf16>())))));
  CHECK_THROWS_WITH(evaluate(product, naive), containing("no product of floats has such weights"));
}

TEMPLATE_TEST_CASE("the planner knows how fast the machine is with such products", "", bf16, q8) {
  const auto layer =
      einsum<"td,do->to">(random<rows>({512, 300}, 1), stored<TestType, 2>({300, 640}, 2));
  compile_options slow = rounding_for<TestType>(), quick = slow;
  slow.as = quick.as = machine{};
  for (machine_rates* r : {&quick.as->one, &quick.as->every})
    r->bf16_dots = r->int8_dots = 8 * r->flops;
  for (machine_rates* r : {&slow.as->one, &slow.as->every}) r->bf16_dots = r->int8_dots = r->flops;
  CHECK(explain(layer, quick).seconds < 0.5 * explain(layer, slow).seconds);
}

TEMPLATE_TEST_CASE("selections rank the rounded scores, whether screening is allowed or not", "",
                   bf16, q8) {
  constexpr extent d = 96, n = 2048;
  const auto w = stored<TestType, 2>({d, n}, 1);
  const compile_options rounding = rounding_for<TestType>();
  const auto x = random<rows>({10, d}, 2);
  const auto kept = top_k(einsum<"td,dn->tn">(x, w), 8);
  const rows scores = evaluate(einsum<"td,dn->tn">(x, w), rounding);
  compile_options all_in_full = rounding;
  all_in_full.screen = false;
  const rows y = evaluate(kept, rounding);
  CHECK(same_bits(y, evaluate(kept, all_in_full)));
  CHECK(same_bits(y, evaluate(top_k(scores, 8))));
  CHECK(has(explain(kept), "screen"));
  CHECK_FALSE(has(explain(kept, rounding), "screen"));
}

TEST_CASE("both passes of a step round their rows") {
  const auto layer = mixture<bf16>();
  const compile_options rounding = rounding_for<bf16>();
  const auto x = random<rows>({20, 45}, 7), dy = random<rows>({20, 45}, 8);
  const auto step = [&](const compile_options& how) {
    auto run = compile_gradients(layer, 20, how);
    rows y({20, 45}), dx({20, 45});
    run(x, dy, y, dx);
    return std::tuple(y, dx, run.gradients().output);
  };
  const auto [y, dx, w] = step(rounding);
  const auto [exact_y, exact_dx, exact_w] = step({});
  CHECK(same_bits(y, evaluate(layer(x), rounding)));
  for (const double d : {distance(dx, exact_dx), distance(w, exact_w)}) {
    CHECK(d > 1e-4);
    CHECK(d < 3e-2);
  }
}

}  // namespace
