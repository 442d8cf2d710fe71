// SPDX-License-Identifier: MIT
// Calls on streams: they wait for nothing, allocate nothing, share memory without a race, and can
// be captured. Emulated streams do their work in turns when somebody waits for one of them. Where
// there is a GPU, its streams are tested, too.
#include <thread>

#include <fmoe/aoe.hpp>
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

constexpr extent rows = 9, width = 12;

const auto gpu = cuda::gpu_or_emulated();  // or one whose emulated streams do their work at once
const auto deferred = cuda::emulated({.streams = cuda::stream_order::deferred});

tensor<float, 2> numbers(unsigned seed) { return random<tensor<float, 2>>({rows, width}, seed); }

// Three steps, whose temporaries are in the workspace.
struct three_steps {
  parameter<float, 2> in = random<parameter<float, 2>>({width, 30}, 3),
                      out = random<parameter<float, 2>>({30, width}, 4);

  auto operator()(const auto& x) const {
    return einsum<"th,ho->to">(softmax(einsum<"ti,ih->th">(x, in)), out);
  }
};

// Experts, whose tokens are sorted in lists of the workspace.
aoe<float> experts() {
  aoe<float> l;
  l.down = random<tensor<float, 3>>({width, 5, 4}, 1);
  l.up = random<tensor<float, 3>>({5, 4, 7}, 2);
  l.linear = random<tensor<float, 3>>({5, width, 7}, 3);
  l.output = random<tensor<float, 3>>({5, 7, width}, 4);
  return l;
}

// A layer with its inputs and results on a device.
struct call {
  cuda::tensor<float, 2> x, y;

  call(const tensor<float, 2>& of, const std::shared_ptr<const cuda::processor>& on)
      : x(of, on),
        y(tensor<float, 2>(of.shape()), on) {}
};

TEST_CASE("a call on a stream returns before its work is done", "[cuda]") {
  const three_steps layer;
  const auto forward = compile(layer, rows, {.on = deferred});
  const tensor<float, 2> x = numbers(1), expected = forward(x);
  call one(x, deferred);
  const cuda::stream s(deferred);
  forward.on(s)(one.x, one.y);
  CHECK(same_bits(one.y.to_host(), tensor<float, 2>(x.shape())));  // another stream's copy
  s.synchronize();
  CHECK(same_bits(one.y.to_host(), expected));
}

TEST_CASE("calls on a stream run one after the other", "[cuda]") {
  const three_steps layer;
  const auto forward = compile(layer, rows, {.on = deferred});
  const tensor<float, 2> x = numbers(1), expected = forward(forward(x));
  call one(x, deferred), two(x, deferred);
  const cuda::stream s(deferred);
  forward.on(s)(one.x, one.y);
  forward.on(s.handle())(one.y, two.y);
  CHECK(same_bits(two.y.to_host(s.handle()), expected));
}

// Emulated streams take turns, step by step, so calls that had one memory would spoil each other's.
TEST_CASE("calls on several streams do not share memory that is in use", "[cuda]") {
  const three_steps steps;
  const auto check = [&](const auto& layer, const auto& on) {
    for (const extent callers : {extent{1}, extent{2}, all}) {
      const auto forward = compile(layer, rows, {.on = on, .callers = callers});
      std::vector<call> calls;
      std::vector<tensor<float, 2>> expected;
      std::vector<std::unique_ptr<cuda::stream>> streams;
      for (unsigned i = 0; i < 4; ++i) {
        calls.emplace_back(numbers(i), on);
        expected.push_back(forward(numbers(i)));
        streams.push_back(std::make_unique<cuda::stream>(on));
      }
      for (unsigned i = 0; i < 4; ++i) forward.on (*streams[i])(calls[i].x, calls[i].y);
      for (const unsigned i : {2u, 0u, 3u, 1u})
        CHECK(same_bits(calls[i].y.to_host(streams[i]->handle()), expected[i]));
    }
  };
  for (const auto& on : {gpu, deferred}) {
    check(steps, on);
    check(experts(), on);
  }
}

TEST_CASE("a call waits for the stream that makes its input", "[cuda]") {
  struct {
    const void* pointer;
    std::array<std::size_t, 2> shape;
    const char* typestr;
    std::array<std::size_t, 2> strides;
    std::uintptr_t stream;
  } made{nullptr, {rows, width}, "<f4", {width * 4, 4}, 0};
  const three_steps layer;
  for (const auto& on : {gpu, deferred}) {
    const auto forward = compile(layer, rows, {.on = on, .callers = 3});
    const tensor<float, 2> x = numbers(1), expected = forward(forward(x));
    call one(x, on), two(x, on);
    const cuda::stream first(on), second(on);
    forward.on(first)(one.x, one.y);
    made.pointer = one.y.data();
    made.stream = reinterpret_cast<std::uintptr_t>(first.handle());
    forward.on(second)(made, two.y);
    CHECK(same_bits(two.y.to_host(second.handle()), expected));
  }
}

TEST_CASE("a layer may end while its calls run", "[cuda]") {
  const tensor<float, 2> x = numbers(1);
  const three_steps layer;
  for (const auto& on : {gpu, deferred}) {
    call one(x, on);
    const cuda::stream s(on);
    {
      const auto forward = compile(layer, rows, {.on = on});
      forward.on(s)(one.x, one.y);
    }
    CHECK(same_bits(one.y.to_host(s.handle()), compile(layer, rows, {.on = on})(x)));
  }
}

TEST_CASE("host arrays on a stream are there when the call returns", "[cuda]") {
  const three_steps layer;
  for (const auto& on : {gpu, deferred}) {
    const auto forward = compile(layer, rows, {.on = on});
    const tensor<float, 2> x = numbers(1), expected = forward(x);
    call one(x, on);
    tensor<float, 2> y(x.shape());
    const cuda::stream s(on);
    forward.on(s)(one.x, y);
    CHECK(same_bits(y, expected));
    forward.on(s)(x, one.y);
    CHECK(same_bits(one.y.to_host(), expected));
  }
}

#ifndef FMOE_JTHREAD_EXECUTOR

// Emulated kernels allocate their shared memory, so these streams run none.
TEST_CASE("a call allocates nothing", "[cuda]") {
  const auto on = cuda::emulated({.streams = cuda::stream_order::never});
  const auto check = [&](const auto& layer) {
    const auto forward = compile(layer, rows, {.on = on});
    const tensor<float, 2> x = numbers(1);
    tensor<float, 2> y(x.shape());
    call one(x, on), two(x, on);
    const auto turned = cuda::at(one.x.data(), {rows, width}, {1, rows});
    const cuda::stream s(on), other(on);
    const long before = cuda::failures.allocations;
    CHECK(allocates_nothing([&] { forward.on(s)(one.x, one.y); }));
    CHECK(allocates_nothing([&] {
      forward.on(other)(turned, one.y);
      forward.on(s)(two.x, two.y);
    }));
    CHECK(allocates_nothing([&] { forward(one.x, one.y); }));
    CHECK(allocates_nothing([&] { forward(x, y); }));
    CHECK(cuda::failures.allocations == before);
  };
  check(three_steps());
  check(experts());
}

#endif

TEST_CASE("threads may call on streams of their own at the same time", "[cuda]") {
  const three_steps layer;
  for (const extent callers : {extent{1}, extent{3}, all}) {
    const auto forward = compile(layer, rows, {.on = gpu, .callers = callers});
    std::vector<call> calls;
    std::vector<tensor<float, 2>> expected;
    for (unsigned i = 0; i < 4; ++i) {
      calls.emplace_back(numbers(i), gpu);
      expected.push_back(forward(numbers(i)));
    }
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const cuda::stream s(gpu);
        for (int n = 0; n < 3; ++n) forward.on(s)(calls[i].x, calls[i].y);
        s.synchronize();
      });
    for (auto& t : threads) t.join();
    for (unsigned i = 0; i < 4; ++i) CHECK(same_bits(calls[i].y.to_host(), expected[i]));
  }
}

// The same on a GPU, where there is one, with CUDA's own graphs.
TEST_CASE("a call can be captured, and its graph reads what the input holds then", "[cuda]") {
  if (std::string(gpu->where()).starts_with("emulated"))
    WARN(
        "There is no GPU, so emulated streams stand for those of CUDA, and CUDA's own graphs are "
        "not tested.");
  for (const auto& on : {gpu, deferred}) {
    const three_steps layer;
    const auto forward = compile(layer, rows, {.on = on, .callers = 2});
    const tensor<float, 2> x = numbers(1), z = numbers(2), expected = forward(x),
                           twice = forward(expected), other = forward(z);
    call one(x, on), two(x, on), plain(z, on);
    const cuda::stream s(on), t(on);
    forward.on(s)(one.x, two.y);  // CUDA loads kernels when they first run
    s.synchronize();
    const tensor<float, 2> zeros(x.shape());
    two.y.copy_from(zeros);
    const cuda::graph g(on, s, [&] {
      forward.on(s)(one.x, one.y);
      forward.on(s)(one.y, two.y);
    });
    s.synchronize();
    CHECK(same_bits(two.y.to_host(), zeros));  // nothing has run
    g.launch(s);
    forward.on(t)(plain.x, plain.y);  // beside the graph, in other memory
    CHECK(same_bits(two.y.to_host(s.handle()), twice));
    CHECK(same_bits(plain.y.to_host(t.handle()), other));
    one.x.copy_from(z);
    g.launch(t);  // on any stream
    CHECK(same_bits(one.y.to_host(t.handle()), other));
  }
}

TEST_CASE("what cannot be captured is refused, and the layer goes on", "[cuda]") {
  const three_steps layer;
  const tensor<float, 2> x = numbers(1);
  tensor<float, 2> y(x.shape());
  const auto forward = compile(layer, rows, {.on = deferred, .callers = 1});
  const tensor<float, 2> expected = forward(x);
  call one(x, deferred);
  const cuda::stream s(deferred), t(deferred);
  const auto captured = [&](const auto& calls) { cuda::graph g(deferred, s, calls); };
  CHECK_THROWS_WITH(captured([&] { s.synchronize(); }),
                    "[cuda] a wait for a stream: operation not permitted when stream is capturing");
  CHECK_THROWS_WITH(captured([&] { compile(layer, rows, {.on = deferred}); }),
                    containing("operation not permitted when stream is capturing"));
  forward.on(t)(one.x, one.y);
  CHECK_THROWS_WITH(captured([&] { forward.on(s)(one.x, one.y); }),
                    "[forward] a captured call keeps memory of its own, and other calls have all "
                    "that the layer has: compile it for more callers");
  t.synchronize();
  CHECK_THROWS_WITH(captured([&] { forward.on(s)(x, y); }),
                    "[forward] a captured call takes arrays of the GPU alone");
  captured([&] { forward.on(s)(one.x, one.y); });
  CHECK_THROWS_WITH(forward(x, y),
                    "[forward] a captured call keeps the memory of the only caller: compile the "
                    "layer for more callers");
  CHECK(same_bits(compile(layer, rows, {.on = deferred})(x), expected));
}

TEST_CASE("a stream of another device is refused, and one of a layer on the CPU", "[cuda]") {
  const three_steps layer;
  const cuda::device_options two{.emulated_devices = 2};
  const auto other = cuda::emulated(two, 1);
  const cuda::stream s(other);
  const auto forward = compile(layer, rows, {.on = cuda::emulated()});
  call one(numbers(1), cuda::emulated());
  CHECK_THROWS_WITH(forward.on(s)(one.x, one.y), "[cuda] a call: the stream is of another device");
  tensor<float, 2> x = numbers(1), y(x.shape());
  CHECK_THROWS_WITH(compile(layer, rows).on(s)(x, y),
                    "[forward] the layer runs on the host, which has no streams");
}

}  // namespace
