// SPDX-License-Identifier: MIT
// The backend as users see it: what explain says, what it refuses, and what its calls promise.
#include <thread>

#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/quantize.hpp>

#include "../support/agree.hpp"
#include "../support/allocations.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// [5, 12], whose rows are the columns of an array [12, 5].
struct transposed {
  const float* first;

  const float* data() const { return first; }
  std::array<extent, 2> shape() const { return {5, 12}; }
  std::array<extent, 2> strides() const { return {1, 5}; }
};

const compile_options emulated{.on = cuda::emulated()};

TEST_CASE("explain says that blocks are emulated, and prints the steps", "[cuda][explain]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  const auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto plan = explain(relu(einsum<"ti,io->to">(x, w)), emulated);
  INFO(plan.text);
  CHECK(
      plan.text.starts_with("cuda, emulated on the CPU, since there is no GPU\ntile of 9 tokens"));
  CHECK(plan.text.find("  gemm      ti,io->to         ") != std::string::npos);
  CHECK(plan.text.find("| relu  (exact)\n") != std::string::npos);
  constexpr extent product_row = 24;  // where the rows of the product lie
  CHECK(plan.memory.packed == 12 * 8 * sizeof(float) + product_row);
}

TEST_CASE("weights of 16 and 8 bits stay so on the device, in products and in tables",
          "[cuda][explain]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  const auto w = random<parameter<bf16, 2>>({12, 16}, 3);
  const auto bytes = [&](const auto& e) { return explain(e, emulated).memory.packed; };
  constexpr extent product_row = 24;  // where the rows of the product lie
  CHECK(bytes(einsum<"ti,io->to">(x, w)) == 12 * 16 * sizeof(bf16) + product_row);
  CHECK(bytes(einsum<"ti,io->to">(top_k(x, 3), w)) == 12 * 16 * sizeof(bf16));
  const auto of_8_bits = quantized<q8>(random<parameter<float, 2>>({12, 20}, 3), 0);
  CHECK(bytes(einsum<"ti,io->to">(x, of_8_bits)) == 12 * 32 + 20 * sizeof(float) + product_row);
}

TEST_CASE("nothing is streamed, and a selection is screened where that pays", "[cuda]") {
  const auto x = random<tensor<float, 2>>({128, 64}, 1);
  const auto w = random<parameter<float, 2>>({64, 20000}, 3);
  const auto table = random<parameter<float, 2>>({20000, 5}, 3);
  const auto layer = einsum<"tn,no->to">(top_k(einsum<"ti,in->tn">(x, w), 3), table);
  for (const bool screen : {false, true}) {
    const std::string text = explain(layer, {.on = cuda::emulated(), .screen = screen}).text;
    INFO(text);
    CHECK(text.find("loop") == text.npos);
    CHECK((text.find("screened") != text.npos) == screen);
  }
}

TEST_CASE("what a GPU does not run is refused in a sentence", "[cuda]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  const pointwise_function twice("twice", [](auto v) { return v + v; });
  CHECK_THROWS_WITH(evaluate(twice(x), emulated),
                    "[cuda] a function of the program's own code does not run on a GPU: write it "
                    "with fmoe's functions, or leave it out of the layer and call it on what the "
                    "layer returns, in \"tb->tb\"");
  const auto lists = random<tensor<float, 3>>({2, 2, 300}, 1);
  CHECK_THROWS_WITH(evaluate(product_top_k(lists, 3, 257), emulated),
                    containing("[cuda] each list keeps 257 entries, and a GPU's block has room for "
                               "256, in "));
  ir::graph g;
  const auto two_rows = g.leaf({nullptr, dtype::float32, {2, 2, 3}, false, 0});
  const auto chosen =
      g.select({.what = detail::selection_rule::kind::entries, .keep = 3, .each = 9}, two_rows);
  CHECK_THROWS_WITH((detail::compile_graph<float, cpu::native>(g, {chosen}, 2, emulated)),
                    containing("[cuda] a selection that is given as its entries does not run on a "
                               "GPU, in "));
}

TEST_CASE("a compiled layer takes arrays of any strides, and reads written weights again",
          "[cuda]") {
  auto w = random<parameter<float, 2>>({12, 7}, 3);
  const auto product = [&](const auto& a) { return einsum<"ti,io->to">(a, w); };
  auto forward = compile(product, 16, emulated);
  for (const extent tokens : {extent{16}, extent{3}, extent{0}}) {
    const auto x = random<tensor<float, 2>>({tokens, 12}, 7);
    tensor<float, 2> y({tokens, 7});
    forward(x, y);
    CHECK(relative_error(y.data(), test::reference(product(x))) <= 1e-6);
  }
  const auto wide = random<tensor<float, 2>>({12, 5}, 7);
  tensor<float, 2> x({5, 12}), y({5, 7}), z({5, 7});
  for (extent t = 0; t < 5; ++t)
    for (extent i = 0; i < 12; ++i) x(t, i) = wide(i, t);
  forward(transposed{wide.data()}, y);
  forward(x, z);
  CHECK(same_bits(y, z));
  w(0, 0) = 5;
  CHECK_THROWS_AS(forward(x, y), value_error);
  forward.refresh();
  forward(x, y);
  CHECK(relative_error(y.data(), test::reference(product(x))) <= 1e-6);
}

TEST_CASE("calls that meet have memory of their own", "[cuda]") {
  const auto w = random<parameter<float, 2>>({40, 30}, 3);
  const auto product = [&](const auto& a) { return gelu(einsum<"ti,io->to">(a, w)); };
  for (const extent callers : {extent{1}, extent{2}, all}) {
    const auto forward = compile(product, 20, {.on = cuda::emulated(), .callers = callers});
    const auto x = random<tensor<float, 2>>({20, 40}, 7);
    const auto expected = evaluate(product(x), emulated);
    std::vector<tensor<float, 2>> results(4);
    std::vector<std::thread> threads;
    for (auto& y : results) threads.emplace_back([&] { y = forward(x); });
    for (auto& t : threads) t.join();
    for (const auto& y : results) CHECK(same_bits(y, expected));
  }
}

}  // namespace
