// SPDX-License-Identifier: MIT
// Sums over the tokens of a call: alone, beside rows, and in rows again; the same bits for any
// number of threads and any tile.
#include <fmoe/compile.hpp>
#include <fmoe/expr/sized.hpp>
#include <fmoe/reference.hpp>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/limits.hpp"
#include "support/same_bits.hpp"
#include "support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 24, outputs = 40, tokens = 600;

tensor<float, 2> rows(const tensor<float, 2>& x, extent count) {
  return {{count, x.shape()[1]}, std::span<const float>(x.data(), count * x.shape()[1])};
}

const auto weight = random<parameter<float, 2>>({inputs, outputs}, 3);

// The gradients of x w, of the weight first.
constexpr auto linear_gradients = [](const auto& x, const auto& dy) {
  return std::tuple(einsum<"ti,to->io">(x, dy), einsum<"to,io->ti">(dy, weight),
                    einsum<"to->o">(dy));
};

struct gradients {
  tensor<float, 2> weight{{inputs, outputs}}, x;
  tensor<float, 1> bias{{outputs}};

  explicit gradients(extent count) : x({count, inputs}) {}
  bool operator==(const gradients& o) const {
    return same_bits(weight, o.weight) && same_bits(x, o.x) && same_bits(bias, o.bias);
  }
};

auto compiled_gradients(const compile_options& options = {}) {
  return compile(
      [](const auto& x, const auto& dy) { return linear_gradients(sized(x, {all, inputs}), dy); },
      arguments<2, 2>{}, tokens, options);
}

TEST_CASE("the reference backend makes sums over tokens and rows in one call", "[token_sums]") {
  const auto x = random<tensor<float, 2>>({300, inputs}, 1),
             dy = random<tensor<float, 2>>({300, outputs}, 2);
  gradients g(300), plain(300);
  compiled_gradients()(x, dy, g.weight, g.x, g.bias);
  compiled_gradients({.on = reference()})(x, dy, plain.weight, plain.x, plain.bias);
  const auto near = [](const auto& a, const auto& b) {
    return relative_error(a.data(), std::vector<double>(b.data(), b.data() + b.size())) <= 4e-6;
  };
  CHECK(near(g.weight, plain.weight));
  CHECK(near(g.x, plain.x));
  CHECK(near(g.bias, plain.bias));
}

// The sum over tokens by its definition: blocks of 256 tokens, each in order from zero.
tensor<float, 2> sum_in_blocks(const tensor<float, 2>& x, const tensor<float, 2>& dy) {
  const extent count = x.shape()[0];
  tensor<float, 2> sum({inputs, outputs});
  for (extent i = 0; i < inputs; ++i)
    for (extent o = 0; o < outputs; ++o)
      for (extent first = 0; first < count; first += 256) {
        float block = 0;
        for (extent t = first; t < std::min(count, first + 256); ++t)
          block = std::fma(x(t, i), dy(t, o), block);
        sum(i, o) = first == 0 ? block : sum(i, o) + block;
      }
  return sum;
}

TEST_CASE("sums over tokens agree with the oracle", "[token_sums]") {
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 1),
             dy = random<tensor<float, 2>>({tokens, outputs}, 2);
  const auto cube = random<tensor<float, 3>>({tokens, 5, 7}, 4),
             other = random<tensor<float, 3>>({tokens, 7, 3}, 5);
  const auto v = random<tensor<float, 1>>({tokens}, 6);
  CHECK(agrees(einsum<"ti,to->io">(x, dy)));
  CHECK(agrees(einsum<"ti,to->oi">(x, dy)));
  CHECK(agrees(einsum<"ti->i">(x)));
  CHECK(agrees(einsum<"ti->">(x)));
  CHECK(agrees(einsum<"t,t->">(v, v)));
  CHECK(agrees(einsum<"t,ti->i">(v, x)));
  CHECK(agrees(einsum<"tab,tbc->ac">(cube, other)));
  CHECK(agrees(einsum<"tab,tbc->cba">(cube, other)));
  CHECK(agrees(einsum<"tab,tab->b">(cube, cube)));
  CHECK(agrees(einsum<"ti,to,ok->ik">(x, dy, random<parameter<float, 2>>({outputs, 9}, 7))));
  CHECK(agrees(einsum<"ti,to,tk->iok">(x, dy, einsum<"tab->ta">(cube))));
  CHECK(agrees(x + einsum<"ti->i">(x)));
  CHECK(agrees(einsum<"ti,io->to">(x, softmax(einsum<"ti,to->io">(x, dy)))));
  CHECK(agrees(einsum<"ti,to->io">(relu(einsum<"to,io->ti">(dy, weight)), top_k(dy, 3))));
  CHECK(agrees(top_k(einsum<"ti->i">(x), 5)));
}

TEST_CASE("a sum over tokens is one of blocks at fixed places", "[token_sums]") {
  for (const extent count : {extent{1}, extent{255}, extent{256}, extent{257}, tokens}) {
    const auto x = random<tensor<float, 2>>({count, inputs}, 1),
               dy = random<tensor<float, 2>>({count, outputs}, 2);
    CHECK(same_bits(evaluate(einsum<"ti,to->io">(x, dy)), sum_in_blocks(x, dy)));
  }
}

TEST_CASE("the sum of selections has the bits of the sum of their dense rows", "[token_sums]") {
  for (const extent count : {extent{1}, extent{256}, extent{257}}) {
    const auto scores = random<tensor<float, 2>>({count, 260}, 1),
               dy = random<tensor<float, 2>>({count, outputs}, 2);
    for (const extent k : {extent{1}, extent{64}}) {
      const auto dense = evaluate(top_k(scores, k));
      CHECK(same_bits(evaluate(einsum<"tn,to->no">(top_k(scores, k), dy)),
                      evaluate(einsum<"tn,to->no">(dense, dy))));
      CHECK(
          same_bits(evaluate(einsum<"tn->n">(top_k(scores, k))), evaluate(einsum<"tn->n">(dense))));
      const auto by_columns = [&](const auto& chosen) {
        return evaluate(std::tuple(einsum<"to,tn->on">(dy, chosen),
                                   einsum<"tab,tn->abn">(einsum<"ta,tb->tab">(dy, dy), chosen)));
      };
      const auto [matrix, three] = by_columns(top_k(scores, k));
      const auto [dense_matrix, dense_three] = by_columns(dense);
      CHECK(same_bits(matrix, dense_matrix));
      CHECK(same_bits(three, dense_three));
    }
    CHECK(agrees(einsum<"tn,to->no">(top_k(scores, 6, weighting::softmax), relu(dy))));
    CHECK(agrees(einsum<"tn,to,op->np">(top_k(scores, 6), dy,
                                        random<parameter<float, 2>>({outputs, 7}, 4))));
  }
}

TEST_CASE("one call makes sums over tokens and rows, of any number of tokens", "[token_sums]") {
  const auto all_x = random<tensor<float, 2>>({tokens, inputs}, 1),
             all_dy = random<tensor<float, 2>>({tokens, outputs}, 2);
  const auto forward = compiled_gradients();
  for (const extent count : {tokens, extent{1}, extent{300}, extent{0}, extent{257}}) {
    INFO(count << " tokens");
    const auto x = rows(all_x, count), dy = rows(all_dy, count);
    gradients g(count);
    std::ranges::fill(std::span(g.weight.data(), g.weight.size()), -7.f);
    forward(x, dy, g.weight, g.x, g.bias);
    const auto [of_weight, of_x, of_bias] = linear_gradients(x, dy);
    CHECK(same_bits(g.weight, sum_in_blocks(x, dy)));
    CHECK(same_bits(g.weight, evaluate(of_weight)));
    CHECK(same_bits(g.x, evaluate(of_x)));
    CHECK(same_bits(g.bias, evaluate(of_bias)));
    CHECK(allocates_nothing([&] { forward(x, dy, g.weight, g.x, g.bias); }));
  }
}

#ifndef FMOE_JTHREAD_EXECUTOR

TEST_CASE("sums over tokens have the same bits for any threads and tiles", "[token_sums]") {
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 1),
             dy = random<tensor<float, 2>>({tokens, outputs}, 2);
  gradients first(tokens);
  compiled_gradients()(x, dy, first.weight, first.x, first.bias);
  for (const int threads : {1, 2, 7})
    for (const extent tile : {extent{1}, extent{24}, extent{96}})
      on_threads(threads, [&] {
        INFO(threads << " threads, tiles of " << tile);
        planner::plan_options limits;
        limits.shape.tile = tile;
        const auto forward = compiled_gradients(limited<float>(limits));
        gradients g(tokens);
        forward(x, dy, g.weight, g.x, g.bias);
        CHECK(g == first);
        CHECK(allocates_nothing([&] { forward(x, dy, g.weight, g.x, g.bias); }));
      });
}

TEST_CASE("large sums over tokens are cut for several threads without a change", "[token_sums]") {
  const auto x = random<tensor<float, 2>>({tokens, 40}, 1),
             dy = random<tensor<float, 2>>({tokens, 200}, 2);
  tensor<float, 2> alone, chosen, columns;
  tensor<float, 1> row;
  for (const int threads : {1, 2, 7})
    on_threads(threads, [&] {
      const auto sum = evaluate(einsum<"ti,to->io">(x, dy));
      const auto sparse = evaluate(einsum<"ti,tj->ij">(top_k(x, 10), dy));
      const auto turned = evaluate(einsum<"tj,ti->ji">(dy, top_k(x, 10)));
      const auto wide = evaluate(einsum<"ti,tj->j">(x, random<tensor<float, 2>>({tokens, 900}, 5)));
      if (alone.empty()) {
        alone = sum;
        row = wide;
        chosen = sparse;
        columns = turned;
      }
      CHECK(same_bits(sum, alone));
      CHECK(same_bits(row, wide));
      CHECK(same_bits(chosen, sparse));
      CHECK(same_bits(columns, turned));
    });
}

#endif

struct column_major {
  float* first;
  std::array<extent, 2> lengths, steps;
  float* data() const { return first; }
  const auto& shape() const { return lengths; }
  const auto& strides() const { return steps; }
};

TEST_CASE("a sum over tokens is written with its strides, and is checked", "[token_sums]") {
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 1),
             dy = random<tensor<float, 2>>({tokens, outputs}, 2);
  const auto forward = compiled_gradients();
  gradients g(tokens);
  std::vector<float> turned(inputs * outputs), x_turned(tokens * inputs);
  forward(x, dy, column_major{turned.data(), {inputs, outputs}, {1, inputs}},
          column_major{x_turned.data(), {tokens, inputs}, {1, tokens}}, g.bias);
  const auto sum = sum_in_blocks(x, dy);
  const auto dx = evaluate(einsum<"to,io->ti">(dy, weight));
  bool same = true;
  for (extent i = 0; i < inputs; ++i) {
    for (extent o = 0; o < outputs; ++o) same &= turned[o * inputs + i] == sum(i, o);
    for (extent t = 0; t < tokens; ++t) same &= x_turned[i * tokens + t] == dx(t, i);
  }
  CHECK(same);
  CHECK_THROWS_WITH(forward(x, dy, tensor<float, 3>({1, inputs, outputs}), g.x, g.bias),
                    "[forward] output 0 has 3 axes and must have 2");
  CHECK_THROWS_WITH(forward(x, rows(dy, 5), g.weight, g.x, g.bias),
                    "[forward] 't' is 5 in input 1 and 600 in output 1");
  CHECK_THROWS_WITH(forward(x, dy, tensor<float, 2>({inputs, outputs + 1}), g.x, g.bias),
                    "[forward] axis 1 of output 0 is 41 and the layer's is 40");
}

TEST_CASE("a NaN in a token reaches the sums and no other row", "[token_sums]") {
  auto x = random<tensor<float, 2>>({tokens, inputs}, 1);
  const auto dy = random<tensor<float, 2>>({tokens, outputs}, 2);
  const auto forward = compile(
      [](const auto& in, const auto& out) {
        return std::tuple(einsum<"ti,to->io">(in, sized(out, {all, outputs})),
                          2 * sized(in, {all, inputs}));
      },
      arguments<2, 2>{}, tokens);
  x(300, 3) = std::numeric_limits<float>::quiet_NaN();
  tensor<float, 2> sum({inputs, outputs}), y({tokens, inputs});
  forward(x, dy, sum, y);
  for (extent i = 0; i < inputs; ++i) CHECK(std::isnan(sum(i, 0)) == (i == 3));
  CHECK(std::isnan(y(300, 3)));
  CHECK(!std::isnan(y(299, 3)));
}

}  // namespace
