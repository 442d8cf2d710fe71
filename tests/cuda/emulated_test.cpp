// SPDX-License-Identifier: MIT
// Emulated blocks run kernels as a GPU does, in any order of threads, and name the mistakes of
// kernels that are broken on purpose.
#include <fmoe/backend/cuda/emulated/block.hpp>
#include <fmoe/backend/cuda/launch_limits.hpp>

#include <numeric>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::cuda;

constexpr thread_order orders[] = {thread_order::ascending, thread_order::descending,
                                   thread_order::shuffled};

// Runs a kernel in blocks of 64 threads with 4 KB of shared memory.
template <class Kernel>
void run(const Kernel& kernel, thread_order order = thread_order::ascending, unsigned blocks = 1) {
  block_runner runner(order);
  run_emulated(runner, {"broken", 64, 4096, blocks}, kernel);
}

TEST_CASE("a fiber pauses and goes on", "[cuda]") {
  fiber f;
  std::vector<int> seen;
  const auto body = [&] {
    seen.push_back(1);
    f.pause();
    seen.push_back(3);
  };
  f.start(body);
  f.resume();
  seen.push_back(2);
  CHECK(!f.has_ended());
  f.resume();
  CHECK(f.has_ended());
  CHECK(seen == std::vector{1, 2, 3});
}

TEST_CASE("a fiber rethrows what its body throws, and can start again", "[cuda]") {
  fiber f;
  const auto fails = [] { throw std::runtime_error("no"); };
  f.start(fails);
  CHECK_THROWS_WITH(f.resume(), "no");
  bool ran = false;
  const auto works = [&] { ran = true; };
  f.start(works);
  f.resume();
  CHECK(ran);
}

TEST_CASE("threads reverse an array in shared memory", "[cuda]") {
  for (const thread_order order : orders) {
    std::vector<int> data(3 * 64), expected(data.size());
    std::iota(data.begin(), data.end(), 0);
    for (extent i = 0; i < data.size(); ++i)
      expected[i] = static_cast<int>(i / 64 * 64 + 63 - i % 64);
    run(
        [&](auto& b) {
          const auto shared = b.template array<int>(64);
          int& mine = data[b.block() * 64 + b.thread()];
          shared[b.thread()] = mine;
          b.sync();
          mine = shared[63 - b.thread()];
        },
        order, 3);
    CHECK(data == expected);
  }
}

TEST_CASE("threads of a block count and those of a warp exchange numbers", "[cuda]") {
  for (const thread_order order : orders) {
    std::vector<unsigned> counts(64), ballots(64), sums(64), lanes(64);
    run(
        [&](auto& b) {
          const unsigned t = b.thread();
          for (unsigned round = 0; round < 3; ++round) counts[t] += b.count(t % 3 == round);
          ballots[t] = b.ballot(t % 32 < 5);
          unsigned sum = t;
          for (unsigned half = 16; half > 0; half /= 2) sum += b.shuffle_xor(sum, half);
          sums[t] = sum;
          lanes[t] = b.shuffle(t, 7);
        },
        order);
    for (unsigned t = 0; t < 64; ++t) {
      CHECK(counts[t] == 64);
      CHECK(ballots[t] == 31);
      CHECK(sums[t] == (t < 32 ? 31u * 16 : 31u * 16 + 32 * 32));
      CHECK(lanes[t] == (t < 32 ? 7 : 39));
    }
  }
}

TEST_CASE("a barrier that some threads skip is named", "[cuda]") {
  for (const thread_order order : orders)
    CHECK_THROWS_WITH(run(
                          [](auto& b) {
                            if (b.thread() < 32) b.sync();
                          },
                          order),
                      test::containing("of block 0 waits in sync (emulated_test.cpp:") &&
                          test::containing("for threads that never come"));
}

TEST_CASE("threads that wait in different barriers are named", "[cuda]") {
  const auto two_barriers = [](auto& b) {
    if (b.thread() % 2 == 0) b.sync();
    else b.count(true);
  };
  for (const thread_order order : orders)
    CHECK_THROWS_WITH(run(two_barriers, order), test::containing(" while others wait in "));
}

TEST_CASE("a lane that leaves its warp is named", "[cuda]") {
  CHECK_THROWS_WITH(run([](auto& b) {
                      if (b.thread() != 40) b.ballot(true);
                    }),
                    test::containing("waits in ballot") && test::containing("never come"));
  CHECK_THROWS_WITH(run([](auto& b) {
                      if (b.thread() % 32 < 16) b.shuffle(1, 0);
                      else b.shuffle_xor(1, 1);
                    }),
                    test::containing("while others wait in shuffle"));
}

TEST_CASE("reads and writes with no barrier between them are named in every order", "[cuda]") {
  const auto missing_barrier = [](auto& b) {
    const auto shared = b.template array<float>(64);
    shared[b.thread()] = 1;
    b.sync();
    const float next = shared[(b.thread() + 1) % 64];
    shared[b.thread()] = next;
  };
  // Here a thread writes what another one has read, and none reads what was written.
  const auto shifted = [](auto& b) {
    const auto shared = b.template array<int>(64);
    shared[b.thread()] = 1;
    b.sync();
    const int next = b.thread() < 63 ? shared[b.thread() + 1] : 0;
    shared[b.thread()] = next;
  };
  CHECK_THROWS_WITH(run(shifted), test::containing("which another thread reads"));
  const auto two_writers = [](auto& b) { b.template array<int>(64)[b.thread() / 2] = 3; };
  for (const thread_order order : orders) {
    CHECK_THROWS_WITH(run(missing_barrier, order),
                      test::containing("with no barrier between them"));
    CHECK_THROWS_WITH(run(two_writers, order),
                      test::containing("of a shared array, which another thread writes"));
  }
}

TEST_CASE("threads add to one number, which nobody reads before the next barrier", "[cuda]") {
  for (const thread_order order : orders) {
    unsigned sum = 0;
    run(
        [&](auto& b) {
          const auto shared = b.template array<unsigned>(1);
          if (b.thread() == 0) shared[0] = 5;
          b.sync();
          b.add(shared, 0, b.thread());
          b.add(shared, 0, 1u);
          b.sync();
          if (b.thread() == 9) sum = shared[0];
        },
        order);
    CHECK(sum == 5 + 63 * 32 + 64);
    const auto early = [](auto& b) {
      const auto shared = b.template array<unsigned>(1);
      if (b.thread() == 0) shared[0] = 5;
      b.sync();
      if (b.thread() == 20) static_cast<void>(static_cast<unsigned>(shared[0]));
      else b.add(shared, 0, 1u);
    };
    CHECK_THROWS_WITH(run(early, order), test::containing("with no barrier between them"));
  }
}

// Each thread copies a number and reads that of its neighbour.
template <unsigned Left, bool Meets>
void copies(emulated_block& b, const float* from, float* to) {
  const auto shared = b.array<float>(64);
  b.copy<1>(shared, b.thread(), from + b.thread(), 1);
  b.commit();
  b.wait<Left>();
  if (Meets) b.sync();
  to[b.thread()] = shared[(b.thread() + 1) % 64];
}

TEST_CASE("copies are there behind a wait and a barrier, and what reads them earlier is named",
          "[cuda]") {
  std::vector<float> from(64), to(64);
  std::iota(from.begin(), from.end(), 0.f);
  for (const thread_order order : orders) {
    run([&](auto& b) { copies<0, true>(b, from.data(), to.data()); }, order);
    for (unsigned t = 0; t < 64; ++t) CHECK(to[t] == from[(t + 1) % 64]);
    CHECK_THROWS_WITH(run([&](auto& b) { copies<1, true>(b, from.data(), to.data()); }, order),
                      test::containing("of a shared array, which a copy is under way to"));
    CHECK_THROWS_AS(run([&](auto& b) { copies<0, false>(b, from.data(), to.data()); }, order),
                    emulation_fault);
  }
}

TEST_CASE("a copy fills what it does not read with 0, and begins where an access may", "[cuda]") {
  alignas(16) float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto one = [&](extent to, unsigned first) {
    return [=, &from](auto& b) {
      const auto shared = b.template array<float>(8);
      if (b.thread() == 0) b.template copy<4>(shared, to, from + first, 3);
      b.commit();
      b.template wait<0>();
      b.sync();
      const auto x = b.template read<4>(shared, to);
      if (x.of[0] != 1 || x.of[2] != 3 || x.of[3] != 0) throw std::runtime_error("other numbers");
    };
  };
  run(one(4, 0));
  CHECK_THROWS_WITH(run(one(2, 0)), test::containing("copies to 16 bytes that do not begin at"));
  CHECK_THROWS_WITH(run(one(4, 1)), test::containing("copies 16 bytes that do not begin at"));
  CHECK_THROWS_WITH(run([](auto& b) { b.template read<2>(b.template array<float>(8), 1); }),
                    test::containing("reads 8 bytes that do not begin at"));
}

TEST_CASE("what other threads still read is not overwritten by a copy", "[cuda]") {
  const float from[64] = {};
  const auto early = [&](auto& b) {
    const auto shared = b.template array<float>(64);
    shared[b.thread()] = 1;
    b.sync();
    static_cast<void>(static_cast<float>(shared[(b.thread() + 1) % 64]));
    b.template copy<1>(shared, b.thread(), from + b.thread(), 1);
  };
  for (const thread_order order : orders)
    CHECK_THROWS_WITH(run(early, order), test::containing("with no barrier between them") ||
                                             test::containing("a copy is under way to"));
}

TEST_CASE("accesses outside of shared memory are named", "[cuda]") {
  CHECK_THROWS_WITH(
      run([](auto& b) { b.template array<float>(63)[b.thread()] = 1; }),
      "emulated broken: thread 63 of block 0 reaches number 63 of a shared array of 63");
  CHECK_THROWS_WITH(run([](auto& b) { b.template array<double>(513); }),
                    test::containing("takes 4112 bytes of shared memory and asks for 4096"));
}

TEST_CASE("a read of shared memory that nobody wrote is named", "[cuda]") {
  CHECK_THROWS_WITH(
      run([](auto& b) {
        const auto shared = b.template array<float>(64);
        if (b.thread() < 63) shared[b.thread()] = 1;
        b.sync();
        const float all = shared[63];
        static_cast<void>(all);
      }),
      test::containing("reads number 63 of a shared array, which no thread has written"));
}

TEST_CASE("threads that see shared arrays differently are named", "[cuda]") {
  CHECK_THROWS_WITH(run([](auto& b) { b.template array<int>(b.thread() + 1); }),
                    test::containing("sees a shared array of 1 numbers as one of 2"));
  CHECK_THROWS_WITH(run([](auto& b) {
                      if (b.thread() == 0) b.template array<int>(8);
                      else b.template array<float>(8);
                    }),
                    test::containing("sees a shared array as two types"));
}

// A GPU runs blocks in any order, also at the same time.
TEST_CASE("a block that needs what another one makes is seen in other orders", "[cuda]") {
  const auto sum = [](thread_order order) {
    std::vector<int> data(6);
    run(
        [&](auto& b) {
          if (b.thread() == 0) data[b.block() + 1] = data[b.block()] + 1;
        },
        order, 5);
    return data.back();
  };
  CHECK(sum(thread_order::ascending) == 5);
  CHECK(sum(thread_order::descending) == 1);
  for (const thread_order order : orders) {
    block_runner runner(order);
    for (const extent n : {extent{0}, extent{1}, extent{2}, extent{30}, extent{97}}) {
      std::vector<int> calls(n);
      runner.each(n, [&](extent i) { ++calls[i]; });
      CHECK(calls == std::vector<int>(n, 1));
    }
  }
}

TEST_CASE("launches that no GPU takes are refused", "[cuda]") {
  const auto launch = [](unsigned threads, extent shared_bytes, extent blocks) {
    expects_launch<int>("a step", threads, shared_bytes, blocks);
  };
  CHECK_NOTHROW(launch(1024, extent{163} << 10, (extent{1} << 31) - 1));
  CHECK_THROWS_WITH(launch(256, 0, extent{1} << 31),
                    "[cuda] a step has more blocks than a GPU takes: give it less workspace");
  CHECK_THROWS_WITH(launch(1056, 0, 1),
                    "[cuda] a step has blocks of more threads than a GPU takes");
  CHECK_THROWS_WITH(launch(256, (extent{163} << 10) + 1, 1),
                    "[cuda] a step asks for more shared memory than a GPU has");
}

TEST_CASE("a runner goes on after a fault", "[cuda]") {
  block_runner runner;
  const auto broken = [](auto& b) {
    if (b.thread() == 5) b.sync();
  };
  CHECK_THROWS_AS(run_emulated(runner, {"broken", 64, 0}, broken), emulation_fault);
  unsigned sum = 0;
  run_emulated(runner, {"sound", 64, 0}, [&](auto& b) {
    b.sync();
    sum += b.thread();
  });
  CHECK(sum == 63 * 32);
}

}  // namespace
