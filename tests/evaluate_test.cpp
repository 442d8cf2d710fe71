// SPDX-License-Identifier: MIT
// Checks what a call of evaluate or of a compiled layer accepts and refuses, and that the bits of a
// row depend only on the row.
#include <fmoe/expr/sized.hpp>
#include <fmoe/mxd.hpp>

#include <atomic>
#include <thread>

#include "support/agree.hpp"
#include "support/allocations.hpp"
#include "support/same_bits.hpp"

#ifndef FMOE_JTHREAD_EXECUTOR
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>
#endif

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent inputs = 24, outputs = 40;

template <class T = float>
mxd<T> layer_of(unsigned seed = 1, extent hidden = 200, extent experts = 300) {
  mxd<T> l;
  l.encoder = random<parameter<T, 2>>({inputs, hidden}, seed, 0.3f);
  l.encoder_bias = random<parameter<T, 1>>({hidden}, seed + 1);
  l.gate = random<parameter<T, 2>>({inputs, experts}, seed + 2, 0.3f);
  l.gate_bias = random<parameter<T, 1>>({experts}, seed + 3);
  l.scales = random<parameter<T, 2>>({experts, outputs}, seed + 4);
  l.decoder = random<parameter<T, 2>>({hidden, outputs}, seed + 5, 0.1f);
  l.bias = random<parameter<T, 1>>({outputs}, seed + 6);
  l.active = 7;
  return l;
}

// Rows at any strides.
template <class T, extent Rank>
struct strided {
  T* first;
  std::array<extent, Rank> lengths;
  std::array<std::ptrdiff_t, Rank> steps;

  T* data() const { return first; }
  const auto& shape() const { return lengths; }
  const auto& strides() const { return steps; }
};

tensor<float, 2> rows_of(const tensor<float, 2>& t, extent first, extent count) {
  const extent width = t.shape()[1];
  return {{count, width}, std::span(t.data() + first * width, count * width)};
}

TEMPLATE_TEST_CASE("evaluate agrees with the oracle and compile with evaluate", "[evaluate]", float,
                   double) {
  const auto small = layer_of<TestType>(1, 20, 30);
  CHECK(agrees(small(random<tensor<TestType, 2>>({13, inputs}, 9))));
  const auto layer = layer_of<TestType>();
  const auto x = random<tensor<TestType, 2>>({130, inputs}, 9);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, 130);
  tensor<TestType, 2> z({130, outputs});
  forward(x, z);
  CHECK(same_bits(y, z));
}

TEST_CASE(
    "any number of tokens up to the compiled one, and any split into calls, has the same bits",
    "[evaluate]") {
  const auto layer = layer_of();
  const extent most = 131;
  const auto x = random<tensor<float, 2>>({most, inputs}, 9);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, most);
  for (const extent tokens : {extent{0}, extent{1}, extent{2}, extent{3}, extent{11}, extent{12},
                              extent{13}, extent{96}, extent{97}, extent{130}, most}) {
    const extent first = (most - tokens) / 2;
    tensor<float, 2> z({tokens, outputs});
    forward(rows_of(x, first, tokens), z);
    CHECK(same_bits(rows_of(y, first, tokens), z));
    CHECK(same_bits(z, evaluate(layer(rows_of(x, first, tokens)))));
  }
  for (const extent tokens : {extent{1}, extent{5}, extent{40}}) {
    tensor<float, 2> z({most, outputs});
    const auto few = compile(layer, tokens);
    for (extent t = 0; t < most; t += tokens) {
      const extent n = std::min(tokens, most - t);
      few(strided<const float, 2>{x.data() + t * inputs, {n, inputs}, {inputs, 1}},
          strided<float, 2>{z.data() + t * outputs, {n, outputs}, {outputs, 1}});
    }
    CHECK(same_bits(y, z));
  }
}

TEST_CASE("leading axes count tokens", "[evaluate]") {
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({24, inputs}, 9);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, 24);
  const tensor<float, 4> batch({2, 3, 4, inputs}, std::span(x.data(), x.size()));
  tensor<float, 3> z({4, 6, outputs});
  forward(batch, z);
  CHECK(same_bits(y, z));
  tensor<float, 1> one({outputs});
  forward(tensor<float, 1>({inputs}, std::span(x.data(), inputs)), one);
  CHECK(std::memcmp(one.data(), y.data(), outputs * sizeof(float)) == 0);
  tensor<float, 3> none({3, 0, outputs});
  forward(tensor<float, 3>({0, 5, inputs}), none);
}

TEST_CASE("rows are used where they lie if their elements are neighbours and they one stride apart",
          "[evaluate]") {
  float a[1];
  const auto plain = [&](std::array<extent, 3> lengths, std::array<std::ptrdiff_t, 3> steps,
                         extent row_rank) {
    strided<float, 3> rows{a, lengths, steps};
    return view_of(rows).has_plain_rows(row_rank);
  };
  CHECK(plain({3, 4, 5}, {20, 5, 1}, 1));
  CHECK(plain({3, 4, 5}, {20, 5, 1}, 2));
  CHECK(plain({3, 4, 5}, {28, 7, 1}, 1));
  CHECK(plain({3, 4, 5}, {27, 5, 1}, 2));
  CHECK(plain({3, 1, 5}, {5, 99, 1}, 1));
  CHECK(plain({3, 4, 1}, {8, 2, 99}, 1));
  CHECK(plain({3, 4, 5}, {0, 0, 1}, 1));
  CHECK(!plain({3, 4, 5}, {28, 7, 1}, 2));
  CHECK(!plain({3, 4, 5}, {29, 7, 1}, 1));
  CHECK(!plain({3, 4, 5}, {5, 0, 1}, 1));
  CHECK(!plain({3, 4, 5}, {0, 5, 1}, 1));
  CHECK(!plain({3, 4, 5}, {4, 1, 12}, 1));
  CHECK(!plain({3, 4, 5}, {20, 5, 0}, 1));
}

TEST_CASE("inputs and outputs of any strides", "[evaluate]") {
  const auto layer = layer_of();
  const extent tokens = 130, room = 20000;  // more than one tile
  const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, tokens);
  const auto check = [&](std::array<std::ptrdiff_t, 2> in, std::array<std::ptrdiff_t, 2> out) {
    std::vector<float> from(room, 77), to(room, 77);
    std::vector<bool> written(room);
    for (extent t = 0; t < tokens; ++t)
      for (extent i = 0; i < inputs; ++i)
        from[t * static_cast<extent>(in[0]) + i * static_cast<extent>(in[1])] = x(t, i);
    forward(strided<const float, 2>{from.data() + 0, {tokens, inputs}, in},
            strided<float, 2>{to.data(), {tokens, outputs}, out});
    int wrong = 0;
    for (extent t = 0; t < tokens; ++t)
      for (extent o = 0; o < outputs; ++o) {
        const extent at = t * static_cast<extent>(out[0]) + o * static_cast<extent>(out[1]);
        wrong += to[at] != y(t, o);
        written[at] = true;
      }
    for (extent i = 0; i < to.size(); ++i) wrong += !written[i] && to[i] != 77;
    CHECK(wrong == 0);
  };
  check({inputs, 1}, {outputs, 1});
  check({inputs + 3, 1}, {outputs + 5, 1});
  check({1, tokens}, {1, tokens});
  check({2 * inputs, 2}, {3 * outputs, 3});
  check({1, tokens + 1}, {outputs, 1});

  // One row serves for all tokens, and rows repeat along one of two leading axes.
  tensor<float, 2> z({tokens, outputs});
  forward(strided<const float, 2>{x.data(), {tokens, inputs}, {0, 1}}, z);
  for (extent t = 0; t < tokens; ++t) CHECK(same_bits(rows_of(z, t, 1), rows_of(y, 0, 1)));
  tensor<float, 2> w({12, outputs});
  forward(strided<const float, 3>{x.data(), {3, 4, inputs}, {inputs, 0, 1}}, w);
  for (extent t = 0; t < 12; ++t) CHECK(same_bits(rows_of(w, t, 1), rows_of(y, t / 4, 1)));
  forward(strided<const float, 3>{x.data(), {3, 4, inputs}, {0, inputs, 1}}, w);
  for (extent t = 0; t < 12; ++t) CHECK(same_bits(rows_of(w, t, 1), rows_of(y, t % 4, 1)));

  // The addresses are one element off the alignment of vectors.
  std::vector<float> shifted(tokens * inputs + 1), to(tokens * outputs + 1);
  std::copy_n(x.data(), x.size(), shifted.data() + 1);
  forward(strided<const float, 2>{shifted.data() + 1, {tokens, inputs}, {inputs, 1}},
          strided<float, 2>{to.data() + 1, {tokens, outputs}, {outputs, 1}});
  CHECK(std::memcmp(to.data() + 1, y.data(), y.size() * sizeof(float)) == 0);
}

template <class T, class From>
void check_input_type() {
  const auto layer = layer_of<T>();
  const auto x = random<tensor<From, 2>>({30, inputs}, 9);
  tensor<T, 2> exact({30, inputs}), y({30, outputs}), z({30, outputs});
  for (extent i = 0; i < x.size(); ++i) exact.data()[i] = convert<T>(x.data()[i]);
  const auto forward = compile(layer, 30);
  forward(x, y);
  forward(exact, z);
  CHECK(same_bits(y, z));
  CHECK(same_bits(y, evaluate(layer(x))));
}

TEST_CASE("inputs of other floating types are widened", "[evaluate]") {
  check_input_type<float, bf16>();
  check_input_type<float, f16>();
  check_input_type<double, float>();
  check_input_type<double, bf16>();
}

TEST_CASE("layers of two arguments, and of arguments of other ranks", "[evaluate]") {
  const auto w = random<parameter<float, 3>>({5, 6, 7}, 1);
  const auto layer = [&](const auto& x, const auto& z) {
    return einsum<"ta,tb,abo->to">(x, relu(z), w);
  };
  const auto forward = compile(layer, arguments<2, 2>{}, 20);
  const auto x = random<tensor<float, 2>>({20, 5}, 2), z = random<tensor<float, 2>>({20, 6}, 3);
  tensor<float, 2> y({20, 7});
  forward(x, z, y);
  CHECK(same_bits(y, evaluate(layer(x, z))));
  CHECK_THROWS_AS(forward(x, rows_of(z, 0, 19), y), shape_error);

  const auto heads = [&](const auto& q) { return einsum<"tab,abo->to">(q, w); };
  const auto of_heads = compile(heads, arguments<3>{}, 20);
  const auto q = random<tensor<float, 3>>({20, 5, 6}, 4);
  of_heads(q, y);
  CHECK(same_bits(y, evaluate(heads(q))));

  const auto bias_only = [&](const auto& v) { return v + 2 * v; };
  const auto of_scalars = compile(bias_only, arguments<1>{}, 20);
  const auto v = random<tensor<float, 1>>({20}, 5);
  tensor<float, 1> tripled({20});
  of_scalars(v, tripled);
  CHECK(tripled(7) == v(7) + 2 * v(7));
}

TEST_CASE("a call that is refused writes nothing", "[evaluate]") {
  const auto layer = layer_of();
  const auto forward = compile(layer, 30);
  const auto x = random<tensor<float, 2>>({30, inputs}, 9);
  tensor<float, 2> y({30, outputs});
  std::fill_n(y.data(), y.size(), 7.f);
  const auto untouched = [&] {
    return std::all_of(y.data(), y.data() + y.size(), [](float v) { return v == 7; });
  };
  const auto out = [&](extent tokens, extent width) {
    return strided<float, 2>{y.data(), {tokens, width}, {static_cast<std::ptrdiff_t>(width), 1}};
  };

  CHECK_THROWS_AS(forward(random<tensor<float, 2>>({30, inputs + 1}, 1), y), shape_error);
  CHECK_THROWS_WITH(forward(random<tensor<float, 2>>({30, 23}, 1), y),
                    "[forward] axis 0 of the rows of input 0 is 23 and the layer's is 24");
  CHECK_THROWS_AS(forward(x, out(30, outputs - 1)), shape_error);
  CHECK_THROWS_AS(forward(x, out(29, outputs)), shape_error);
  CHECK_THROWS_AS(forward(rows_of(x, 0, 29), y), shape_error);
  CHECK_THROWS_AS(forward(strided<const float, 2>{x.data(), {31, inputs}, {0, 1}},
                          tensor<float, 2>({31, outputs})),
                  shape_error);
  CHECK_THROWS_AS(forward(tensor<float, 0>(std::array<extent, 0>{}), y), shape_error);
  CHECK_THROWS_AS(forward(x, strided<float, 2>{y.data(), {30, outputs}, {0, 1}}), value_error);
  CHECK_THROWS_AS(forward(strided<const float, 2>{x.data() + 29 * inputs,
                                                  {30, inputs},
                                                  {-static_cast<std::ptrdiff_t>(inputs), 1}},
                          y),
                  value_error);
  CHECK_THROWS_AS(
      forward(
          strided<const float, 18>{
              x.data(), {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 30, inputs}, {}},
          y),
      shape_error);
  CHECK(untouched());

  // Output and input may not overlap, not even by one element.
  CHECK_THROWS_AS(forward(strided<const float, 2>{y.data(), {30, inputs}, {inputs, 1}}, y),
                  value_error);
  std::vector<float> both(inputs + outputs);
  const strided<const float, 2> in{both.data(), {1, inputs}, {inputs, 1}};
  CHECK_THROWS_AS(
      forward(in, strided<float, 2>{both.data() + inputs - 1, {1, outputs}, {outputs, 1}}),
      value_error);
  forward(in, strided<float, 2>{both.data() + inputs, {1, outputs}, {outputs, 1}});
  CHECK(untouched());
}

TEST_CASE("what cannot be compiled is refused when it is compiled", "[evaluate]") {
  auto layer = layer_of();
  layer.active = 301;
  CHECK_THROWS_AS(compile(layer, 4), value_error);
  layer = layer_of();
  layer.decoder = random<parameter<float, 2>>({199, outputs}, 1);
  CHECK_THROWS_AS(compile(layer, 4), shape_error);
  layer.decoder = {};
  CHECK_THROWS_AS(compile(layer, 4), value_error);
  const auto w = random<parameter<float, 2>>({5, 5}, 1);
  CHECK_THROWS_AS(compile([&](const auto& x) { return einsum<"ti->it">(sized(x, {all, 5})); }, 4),
                  value_error);
  CHECK_THROWS_AS(compile([&](const auto& x) { return einsum<"ti,io->ot">(x, w); }, 4),
                  value_error);
  CHECK_THROWS_AS(compile([&](const auto& x) { return relu(x); }, 4), shape_error);
  CHECK_THROWS_WITH(compile([&](const auto&) { return relu(w); }, 4),
                    "[compile] the layer uses 0 of its 1 arguments");
  CHECK_THROWS_AS(compile([&](const auto&) { return einsum<"ab->">(w); }, 4), value_error);
}

TEST_CASE("a NaN or an infinity in one token changes no other row", "[evaluate]") {
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({50, inputs}, 9);
  const auto y = evaluate(layer(x));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()})
    for (const extent row : {extent{0}, extent{3}, extent{17}, extent{49}}) {
      tensor<float, 2> dirty({50, inputs}, std::span(x.data(), x.size()));
      dirty(row, row % inputs) = bad;
      const auto z = evaluate(layer(dirty));
      CHECK(std::isnan(z(row, 0)));
      CHECK(same_bits(rows_of(z, 0, row), rows_of(y, 0, row)));
      CHECK(same_bits(rows_of(z, row + 1, 49 - row), rows_of(y, row + 1, 49 - row)));
    }
}

TEST_CASE("compiled layers share packed weights, and outlive their layer", "[evaluate]") {
  const auto x = random<tensor<float, 2>>({6, inputs}, 9);
  auto layer = std::make_unique<mxd<>>(layer_of());
  const auto y = evaluate((*layer)(x));
  const auto encoder = layer->encoder.shared_storage();
  const auto first = compile(*layer, 6);
  const long holders = encoder.use_count();
  const auto second = compile(*layer, 6);
  CHECK(encoder.use_count() > holders);
  layer.reset();
  tensor<float, 2> z({6, outputs}), w({6, outputs});
  first(x, z);
  second(x, w);
  CHECK(same_bits(y, z));
  CHECK(same_bits(y, w));
}

TEST_CASE("a tensor that is no parameter may be refilled between evaluations", "[evaluate]") {
  auto x = random<tensor<bf16, 2>>({6, inputs}, 1);
  auto w = random<tensor<float, 2>>({inputs, outputs}, 2);
  auto half = random<tensor<f16, 2>>({inputs, outputs}, 3);
  // Nothing is kept for new storage.
  const auto copied = [](const auto& t) {
    return std::remove_cvref_t<decltype(t)>(t.shape(), std::span(t.data(), t.size()));
  };
  const auto check = [&] {
    CHECK(same_bits(evaluate(einsum<"ti,io->to">(x, w)),
                    evaluate(einsum<"ti,io->to">(copied(x), copied(w)))));
    CHECK(same_bits(evaluate(einsum<"ti,io->to">(x, half)),
                    evaluate(einsum<"ti,io->to">(copied(x), copied(half)))));
  };
  const auto refill = [](auto& t, unsigned seed) {
    const auto other = random<std::remove_reference_t<decltype(t)>>(t.shape(), seed);
    std::copy_n(other.data(), other.size(), t.data());
  };
  check();
  refill(x, 4);
  check();
  refill(w, 5);
  refill(half, 6);
  check();
}

TEST_CASE("many threads call one compiled layer, more than it has memory for", "[evaluate]") {
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({150, inputs}, 9);
  const auto y = evaluate(layer(x));
  for (const extent callers : {extent{1}, extent{3}}) {
    const auto forward = compile(layer, 150, {.callers = callers});
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (extent i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        tensor<float, 2> z({150 - i, outputs});
        for (int repeat = 0; repeat < 5; ++repeat) {
          std::fill_n(z.data(), z.size(), -1.f);
          forward(strided<const float, 2>{x.data() + i * inputs, {150 - i, inputs}, {inputs, 1}},
                  z);
          wrong += !same_bits(z, rows_of(y, i, 150 - i));
        }
      });
    for (auto& t : threads) t.join();
    CHECK(wrong == 0);
  }
}

#ifndef FMOE_JTHREAD_EXECUTOR

TEST_CASE("a compiled call allocates nothing", "[evaluate]") {
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({400, inputs}, 9);
  const auto half = random<tensor<bf16, 2>>({400, inputs}, 9);
  tensor<float, 2> y({400, outputs});
  const auto turned = strided<float, 2>{y.data(), {400, outputs}, {1, 400}};
  for (const int threads : {1, 4}) {
    tbb::global_control more(tbb::global_control::max_allowed_parallelism, 4);
    tbb::task_arena arena(threads);
    arena.execute([&] {
      const auto forward = compile(layer, 400);
      forward(x, y);
      CHECK(allocates_nothing([&] { forward(x, y); }));
      CHECK(allocates_nothing([&] { forward(half, y); }));
      CHECK(allocates_nothing([&] { forward(x, turned); }));
    });
  }
}

TEST_CASE("1, 2 and 7 threads compute the same bits, again and again", "[evaluate]") {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 8);
  const auto layer = layer_of();
  for (const extent tokens : {extent{1}, extent{50}, extent{170}, extent{700}}) {
    const auto x = random<tensor<float, 2>>({tokens, inputs}, 9);
    tensor<float, 2> y;
    for (const int threads : {1, 2, 7}) {
      tbb::task_arena arena(threads);
      arena.execute([&] {
        const auto forward = compile(layer, tokens);
        tensor<float, 2> z({tokens, outputs});
        for (int repeat = 0; repeat < 3; ++repeat) {
          std::fill_n(z.data(), z.size(), -1.f);
          forward(x, z);
          if (y.empty()) y = {{tokens, outputs}, std::span<const float>(z.data(), z.size())};
          CHECK(same_bits(y, z));
        }
        CHECK(same_bits(y, evaluate(layer(x))));
      });
    }
  }
}

TEST_CASE("a layer compiled in one arena runs in another", "[evaluate]") {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 8);
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({300, inputs}, 9);
  const auto y = evaluate(layer(x));
  tbb::task_arena one(1), seven(7);
  const auto narrow = one.execute([&] { return compile(layer, 300); });
  const auto wide = seven.execute([&] { return compile(layer, 300); });
  tensor<float, 2> z({300, outputs});
  seven.execute([&] { narrow(x, z); });
  CHECK(same_bits(y, z));
  std::fill_n(z.data(), z.size(), -1.f);
  one.execute([&] { wide(x, z); });
  CHECK(same_bits(y, z));
}

TEST_CASE("evaluate works inside a user's tasks", "[evaluate]") {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 4);
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({200, inputs}, 9);
  const auto y = evaluate(layer(x));
  const auto forward = compile(layer, 200, {.callers = 2});
  std::atomic<int> wrong{0};
  tbb::parallel_for(0, 16, [&](int i) {
    if (i % 2 == 0) {
      wrong += !same_bits(y, evaluate(layer(x)));
    } else {
      tensor<float, 2> z({200, outputs});
      forward(x, z);
      wrong += !same_bits(y, z);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a cancelled outer group does not cut a result short", "[evaluate]") {
  tbb::global_control more(tbb::global_control::max_allowed_parallelism, 4);
  tbb::task_arena arena(4);
  arena.execute([&] {
    const auto layer = layer_of();
    const auto x = random<tensor<float, 2>>({400, inputs}, 9);
    const auto y = evaluate(layer(x));
    const auto forward = compile(layer, 400, {.callers = 4});
    std::atomic<int> wrong{0}, ran{0};
    tbb::task_group_context group;
    tbb::parallel_for(
        0, 4,
        [&](int) {
          group.cancel_group_execution();
          tensor<float, 2> z({400, outputs});
          std::fill_n(z.data(), z.size(), -1.f);
          forward(x, z);
          wrong += !same_bits(y, z);
          ++ran;
        },
        group);
    CHECK(ran > 0);
    CHECK(wrong == 0);
  });
}

#endif

TEST_CASE("a call uses as many threads as it is told, and gives the same bits", "[evaluate]") {
  const auto layer = layer_of();
  const auto x = random<tensor<float, 2>>({300, inputs}, 9);
  const auto y = evaluate(layer(x));
  for (const extent threads : {extent{1}, extent{2}, extent{7}}) {
    CHECK(same_bits(evaluate(layer(x), {.threads = threads}), y));
    CHECK(same_bits(compile(layer, 300, {.threads = threads})(x), y));
  }
}

TEST_CASE("a call ends with the weights that it began with", "[evaluate]") {
  const auto x = random<tensor<float, 2>>({3, 12}, 1);
  const auto w = random<parameter<float, 2>>({12, 70}, 2);
  auto late = random<parameter<float, 1>>({70}, 3);
  std::atomic<bool> armed = false;
  const pointwise_function assigns("assigns", [&](auto v) {
    if (armed.exchange(false)) late = tensor<float, 1>({70});
    return v;
  });
  const auto forward =
      compile([&](const auto& rows) { return assigns(einsum<"ti,io->to">(rows, w)) * late; }, 3);
  const auto before = forward(x);
  armed = true;
  CHECK(same_bits(forward(x), before));
  CHECK(!armed);
  CHECK(std::as_const(late)(0) == 0);
  CHECK_THROWS_AS(forward(x), value_error);
}

TEST_CASE("a layer may be assigned while its compiled form runs, which refuses from then on",
          "[evaluate]") {
  auto layer = layer_of();
  auto other = layer;
  other.decoder(0, 0) += 1;
  const auto x = random<tensor<float, 2>>({6, inputs}, 9);
  const auto before = evaluate(layer(x)), after = evaluate(other(x));
  auto ready = compile(layer, 6);
  std::atomic<int> calls = 0;
  bool same = true;
  std::thread server([&] {
    tensor<float, 2> y({6, outputs});
    for (;; ++calls) {
      try {
        ready(x, y);
      } catch (const value_error&) {
        return;
      }
      same = same && same_bits(y, before);
    }
  });
  while (calls < 3) std::this_thread::yield();
  layer = other;
  server.join();
  CHECK(same);
  ready.refresh();
  CHECK(same_bits(ready(x), after));
}

TEST_CASE("a parameter that was written is packed again, and its older panels are freed",
          "[evaluate]") {
  const auto x = random<tensor<float, 2>>({9, 12}, 1);
  auto w = random<parameter<float, 2>>({12, 70}, 2);
  const auto product = [&] { return einsum<"ti,io->to">(x, w); };
  CHECK(agrees(product()));
  const std::weak_ptr<const void> derived =
      w.shared_storage()->derived("a test's", [] { return std::make_shared<const int>(1); });
  CHECK_FALSE(derived.expired());
  w(3, 4) += 100;
  CHECK(agrees(product()));
  CHECK(derived.expired());
  w.data()[5] -= 100;
  CHECK(agrees(product()));
}

}  // namespace
