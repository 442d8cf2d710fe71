// SPDX-License-Identifier: MIT
// Every layer keeps these promises on every backend: the bits of a row depend only on the row,
// whatever the calls, threads and other rows; a NaN stays in its row; a call without tokens is
// valid; wrong shapes are refused before anything is written. On the CPU a compiled call allocates
// nothing.
#include <fmoe/cuda.hpp>
#include <fmoe/reference.hpp>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/same_bits.hpp"
#include "support/small_layers.hpp"
#include "support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// A call of this many tokens has several tiles on the CPU; the others have none
// and are slow.
struct {
  const char* name;
  compile_options options;
  extent tokens;
} const backends[] = {
#ifndef FMOE_JTHREAD_EXECUTOR  // tsan takes minutes for emulated threads, which are one thread's
    {"cuda", {.on = cuda::gpu_or_emulated()}, 20},
#endif
    {"cpu", {}, 230},
    {"reference", {.on = reference()}, 20}};

auto compiled_for(const small_layer& l, extent tokens, const compile_options& options = {}) {
  return compile([&](const auto& x) { return l(expr(x)); }, tokens, options);
}

// Calls check(layer, backend) for each layer on each backend.
void for_each_layer(const auto& check) {
  for (const auto& on : backends)
    for (const auto& [name, l] : small_layers) {
      INFO(name << " on " << on.name);
      check(l, on);
    }
}

tensor<float, 2> call(const auto& forward, const tensor<float, 2>& x) {
  tensor<float, 2> y(x.shape());
  std::fill_n(y.data(), y.size(), -7.f);
  forward(x, y);
  return y;
}

tensor<float, 2> rows(const tensor<float, 2>& x, extent first, extent count) {
  const extent columns = x.shape()[1];
  return {{count, columns}, std::span<const float>(x.data() + first * columns, count * columns)};
}

TEST_CASE("layers agree with the oracle, in calls of any size", "[contracts]") {
  for_each_layer([](const small_layer& l, const auto& on) {
    const extent tokens = on.tokens;
    const auto x = random<tensor<float, 2>>({tokens, width}, 9);
    CHECK(agrees(l(expr(rows(x, 0, 6))), on.options));
    const auto forward = compiled_for(l, tokens, on.options);
    const auto y = call(forward, x);
    for (const auto& [first, count] : {std::pair<extent, extent>{0, 1},
                                       {tokens - 1, 1},
                                       {3, 17},
                                       {tokens / 2, tokens / 2},
                                       {9, 0}})
      CHECK(same_bits(call(forward, rows(x, first, count)), rows(y, first, count)));
    CHECK(same_bits(call(forward, x), y));
  });
}

TEST_CASE("a NaN or an infinity in one token changes no other row", "[contracts]") {
  for_each_layer([](const small_layer& l, const auto& on) {
    const extent tokens = std::min<extent>(on.tokens, 60), bad_row = tokens / 2 + 1;
    const auto x = random<tensor<float, 2>>({tokens, width}, 9);
    const auto forward = compiled_for(l, tokens, on.options);
    const auto y = call(forward, x);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto z = rows(x, 0, tokens);
      z(bad_row, 2) = bad;
      const auto other = call(forward, z);
      CHECK(same_bits(rows(other, 0, bad_row), rows(y, 0, bad_row)));
      const extent after = bad_row + 1;
      CHECK(same_bits(rows(other, after, tokens - after), rows(y, after, tokens - after)));
      if (std::isnan(bad)) CHECK(std::isnan(other(bad_row, 0)));
    }
  });
}

TEST_CASE("inputs of the wrong width are refused before anything is written", "[contracts]") {
  for_each_layer([&](const small_layer& l, const auto& on) {
    CHECK_THROWS_AS(evaluate(l(expr(tensor<float, 2>({3, width + 1}))), on.options), shape_error);
    const auto forward = compiled_for(l, 5, on.options);
    tensor<float, 2> y({5, width});
    CHECK_THROWS_AS(forward(tensor<float, 2>({5, width - 1}), y), shape_error);
    CHECK_THROWS_AS(forward(tensor<float, 2>({6, width}), y), shape_error);
    CHECK(std::all_of(y.data(), y.data() + y.size(), [](float v) { return v == 0; }));
  });
}

#ifndef FMOE_JTHREAD_EXECUTOR

TEST_CASE("1, 2 and 7 threads compute the same bits and allocate nothing", "[contracts]") {
  const auto x = random<tensor<float, 2>>({500, width}, 9);
  auto all = std::vector<std::pair<const char*, small_layer>>(std::begin(small_layers),
                                                              std::end(small_layers));
  all.emplace_back("AoE, expert choice", mixture(routing::by::expert_choice));
  for (const auto& [name, l] : all) {
    INFO(name);
    tensor<float, 2> first;
    for (const int threads : {1, 2, 7}) {
      on_threads(threads, [&, &l = l] {
        const auto forward = compiled_for(l, 500);
        const auto y = call(forward, x);
        tensor<float, 2> z({500, width});
        CHECK(allocates_nothing([&] { forward(x, z); }));
        CHECK(same_bits(y, z));
        if (first.empty()) first = y;
        CHECK(same_bits(y, first));
      });
    }
  }
}

#endif

// With few tokens, products are cut by columns. These layers are large enough for that.
TEST_CASE("few tokens have the bits of many, whoever computes which columns", "[contracts]") {
  const extent wide = 384;
  mxd<float> l;
  fill(l.encoder, {wide, 2048}, 1);
  fill(l.gate, {wide, 2500}, 2);
  fill(l.scales, {2500, wide}, 3);
  fill(l.decoder, {2048, wide}, 4);
  l.active = 6;
  const auto x = random<tensor<float, 2>>({48, wide}, 9);
  for (const bool screened : {true, false}) {
    compile_options options;
    options.screen = screened;
    const auto y = call(compile(l, 48, options), x);
    for (const int threads : {1, 7})
      for (const extent tokens : std::initializer_list<extent>{1, 3, 40}) {
        INFO(threads << " threads, " << tokens << " tokens");
        on_threads(threads, [&] {
          const auto forward = compile(l, tokens, options);
          const auto some = rows(x, 7, tokens);
          auto z = call(forward, some);
          CHECK(same_bits(z, rows(y, 7, tokens)));
#ifndef FMOE_JTHREAD_EXECUTOR
          CHECK(allocates_nothing([&] { forward(some, z); }));
#endif
        });
      }
  }
}

}  // namespace
