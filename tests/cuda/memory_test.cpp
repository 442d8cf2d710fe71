// SPDX-License-Identifier: MIT
// Several devices, their memory, and what happens when it is not enough or when a step fails.
#include <fmoe/cuda.hpp>
#include <fmoe/fmoe.hpp>

#include <fmoe/backend/cuda/emulated/emulated_memory.hpp>

#include "../support/allocations.hpp"
#include "../support/catch.hpp"
#include "../support/oracle.hpp"
#include "../support/same_bits.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent rows = 8, width = 12, hidden = 40;
constexpr extent weight_bytes = 2 * width * hidden * sizeof(float);

extent in_use() { return cuda::emulated_memory::in_use(); }

tensor<float, 2> numbers(unsigned seed) { return random<tensor<float, 2>>({rows, width}, seed); }

struct two_products {
  parameter<float, 2> in = random<parameter<float, 2>>({width, hidden}, 3),
                      out = random<parameter<float, 2>>({hidden, width}, 4);

  auto operator()(const auto& x) const {
    return einsum<"th,ho->to">(softmax(einsum<"ti,ih->th">(x, in)), out);
  }
};

TEST_CASE("weights are uploaded once for each device", "[cuda]") {
  const two_products layer;
  const cuda::device_options two{.emulated_devices = 2};
  const auto first = cuda::emulated(two, 0), second = cuda::emulated(two, 1);
  const extent before = in_use();
  const auto a = compile(layer, rows, {.on = first});
  const extent with_a = in_use() - before;
  const auto b = compile(layer, rows, {.on = first});
  CHECK(in_use() - before == 2 * with_a - weight_bytes);
  const auto c = compile(layer, rows, {.on = second});
  CHECK(in_use() - before == 3 * with_a - weight_bytes);
  const tensor<float, 2> x = numbers(1), y = a(x);
  CHECK(same_bits(b(x), y));
  CHECK(same_bits(c(x), y));
  cuda::tensor<float, 2> there(x, second), made({rows, width}, second);
  c(there, made);
  CHECK(same_bits(made.to_host(), y));
  CHECK_THROWS_WITH(cuda::emulated(two, 2),
                    "[cuda] there is no emulated device 2: the options say 2");
}

TEST_CASE("explain counts what a layer takes of a device", "[cuda]") {
  for (const extent callers : {extent{1}, extent{3}}) {
    const two_products layer;
    const compile_options options{.on = cuda::emulated(), .callers = callers};
    const auto plan = explain(layer(numbers(1)), options);
    const extent before = in_use();
    const auto forward = compile(layer, rows, options);
    constexpr extent staged = rows * 256;  // the input, which an expression holds itself
    CHECK(in_use() - before == plan.memory.packed + callers * (plan.memory.call + staged));
  }
}

TEST_CASE("a layer takes no more memory than it may", "[cuda]") {
  const two_products layer;
  const auto x = numbers(1);
  const auto with = [](extent memory, extent callers = 1) {
    return compile_options{.on = cuda::emulated({.memory = memory}), .callers = callers};
  };
  const extent before = in_use();
  tensor<float, 2> expected;
  extent whole = 0;
  {
    const auto forward = compile(layer, rows, with(all));
    expected = forward(x);
    whole = in_use() - before;
  }
  for (extent memory = whole; memory > whole - 1200; memory -= 100) {  // fewer tokens at a time
    const auto forward = compile(layer, rows, with(memory));
    CHECK(in_use() - before <= memory);
    CHECK(same_bits(forward(x), expected));
  }
  CHECK(in_use() == before + weight_bytes);  // which stay with their parameters
  CHECK_THROWS_WITH(compile(layer, rows, with(weight_bytes)),
                    containing(" bytes of the GPU, ") && containing("and may take 3840"));
  CHECK_THROWS_AS(compile(layer, rows, with(whole, 2)), value_error);
  {
    const auto forward = compile(layer, rows, with(whole, all));  // a second call waits
    CHECK(same_bits(forward(x), expected));
  }
  CHECK(in_use() == before + weight_bytes);
}

TEST_CASE("a device without enough memory refuses a layer, and goes on with others", "[cuda]") {
  const two_products layer;
  const auto on = cuda::emulated({.device_memory = 20000});
  const auto x = numbers(1);
  const auto forward = compile(layer, rows, {.on = on});
  const tensor<float, 2> expected = forward(x);
  const extent before = in_use();
  CHECK_THROWS_WITH(compile(layer, 4000, {.on = on}), containing("bytes of memory: out of memory"));
  CHECK_THROWS_AS((cuda::tensor<float, 2>({100, 100}, on)), cuda::error);
  CHECK(in_use() == before);
  CHECK(same_bits(forward(x), expected));
  CHECK(same_bits(compile(layer, 2, {.on = on})(tensor<float, 2>({2, width})),
                  forward(tensor<float, 2>({2, width}))));
}

// Makes allocation 0, 1, ... of a device fail, until f() has no more. Returns how many failed.
long fail_each(const auto& f, const auto& check) {
  for (long n = 0;; ++n) {
    cuda::failures.allocations_left = n;
    bool failed = false;
    try {
      f();
    } catch (const cuda::error& e) {
      failed = true;
      CHECK_THAT(e.what(), containing("bytes of memory: out of memory"));
    }
    cuda::failures.allocations_left = -1;
    if (!failed) return n;
    check();
  }
}

TEST_CASE("whichever allocation of the device fails, nothing leaks and the next one works",
          "[cuda]") {
  const auto on = cuda::emulated();
  const auto x = numbers(1);
  const two_products other;
  const auto forward = compile(other, rows, {.on = on});
  const tensor<float, 2> expected = forward(x);
  const two_products layer;  // whose weights are not on the device
  const extent before = in_use();
  const auto check = [&] { CHECK(same_bits(forward(x), expected)); };
  const long failed = fail_each(
      [&] { compile(layer, rows, {.on = on, .callers = 2}); },
      [&] {
        check();
        const extent weights = in_use() - before;  // those that are uploaded stay with the layer
        CHECK(weights <= weight_bytes);
      });
  CHECK(failed >= 6);
  CHECK(in_use() - before == weight_bytes);
  CHECK(same_bits(compile(layer, rows, {.on = on})(x), expected));
}

TEST_CASE("a call that gets no memory of its own fails, and the next one works", "[cuda]") {
  const auto on = cuda::emulated();
  const two_products layer;
  const auto forward = compile(layer, rows, {.on = on});
  const tensor<float, 2> x = numbers(1), expected = forward(x);
  cuda::tensor<float, 2> in(x, on), out({rows, width}, on);
  const cuda::stream s(on);
  const cuda::graph g(on, s, [&] { forward.on(s)(in, out); });  // which keeps the only memory
  tensor<float, 2> y;
  const long failed = fail_each([&] { y = forward(x); }, [] {});
  CHECK(same_bits(y, expected));
  CHECK(failed >= 1);
}

TEST_CASE("a layer survives the lack of any memory of the host while it is compiled", "[cuda]") {
  const auto on = cuda::emulated();
  const two_products layer;
  const extent before = in_use();
  const long attempts = fail_each_allocation([] {}, [&] { compile(layer, rows, {.on = on}); },
                                             [&] { REQUIRE(in_use() - before <= weight_bytes); });
  CHECK(attempts > 100);
  const auto x = numbers(1);
  CHECK(
      same_bits(compile(layer, rows, {.on = on})(x), compile(two_products(), rows, {.on = on})(x)));
}

TEST_CASE("a step that fails is named, at the latest by the next call", "[cuda]") {
  const two_products layer;
  const tensor<float, 2> x = numbers(1);
  const auto sound = compile(layer, rows, {.on = cuda::emulated()});
  const tensor<float, 2> expected = sound(x);
  const auto failing = [&](long step, const auto& check) {
    const auto on = cuda::emulated();
    const auto forward = compile(layer, rows, {.on = on});
    cuda::tensor<float, 2> in(x, on), out({rows, width}, on);
    const cuda::stream s(on);
    cuda::failures.launches_left = step;
    check(forward, s, in, out);
    cuda::failures.launches_left = -1;
    CHECK_THROWS_WITH(forward(x), "[cuda] before a call: unspecified failure");
  };
  // A product of few rows is two launches.
  failing(1, [](const auto& forward, const auto& s, const auto& in, auto& out) {
    CHECK_THROWS_WITH(forward.on(s)(in, out), "[cuda] softmax: unspecified failure");
  });
  failing(4, [](const auto& forward, const auto& s, const auto& in, auto& out) {
    forward.on(s)(in, out);  // its last step
    CHECK_THROWS_WITH(s.synchronize(), "[cuda] the end of a call: unspecified failure");
  });
  failing(4, [](const auto& forward, const auto&, const auto& in, auto& out) {
    CHECK_THROWS_WITH(forward(in, out), "[cuda] the end of a call: unspecified failure");
  });
  CHECK(same_bits(sound(x), expected));
}

}  // namespace
