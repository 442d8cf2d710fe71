// SPDX-License-Identifier: MIT
// A crew calls each task of a region once, whether its helpers come at once, late or never.
#include <fmoe/backend/cpu/crew.hpp>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "../support/catch.hpp"

namespace {

using namespace fmoe::cpu;

// How often each of the tasks is called in a region.
std::vector<int> calls(crew& c, extent tasks) {
  std::vector<std::atomic<int>> counts(tasks);
  c.run(tasks, [&](extent i) { ++counts[i]; });
  return {counts.begin(), counts.end()};
}

std::vector<int> ones(extent tasks) { return std::vector<int>(tasks, 1); }

TEST_CASE("one thread runs the tasks in order", "[crew]") {
  std::vector<extent> order;
  crew::alone().run(4, [&](extent i) { order.push_back(i); });
  CHECK(order == std::vector<extent>{0, 1, 2, 3});
  CHECK(crew::alone().size() == 1);
}

TEST_CASE("nobody waits for helpers that never come", "[crew]") {
  std::vector<extent> called;
  const auto call = [&](extent seat) { called.push_back(seat); };
  crew c(3, call);
  for (const extent tasks : {extent{0}, extent{1}, extent{2}, extent{3}, extent{50}})
    CHECK(calls(c, tasks) == ones(tasks));
  CHECK(called == std::vector<extent>{1, 2});  // once for each seat
}

TEST_CASE("a helper begins with the tasks of its seat, and is called again when it has left",
          "[crew]") {
  crew* all = nullptr;
  extent called = 0;
  const auto call = [&](extent seat) {  // comes at once, and leaves when nothing comes for a while
    ++called;
    all->help(seat);
  };
  crew c(2, call);
  all = &c;
  for (extent region = 1; region <= 3; ++region) {
    std::vector<extent> order;
    c.run(6, [&](extent i) { order.push_back(i); });
    CHECK(order == std::vector<extent>{3, 4, 5, 0, 1, 2});
    CHECK(called == region);
  }
}

// Threads that are joined when they are cleared; LLVM's library of release 16 has no std::jthread.
class helper_threads {
 public:
  ~helper_threads() { clear(); }
  template <class F>
  void add(const F& f) {
    threads_.emplace_back(f);
  }
  void clear() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

TEST_CASE("a region ends after the task that a helper began last", "[crew]") {
  helper_threads helpers;
  crew* all = nullptr;
  const auto call = [&](extent seat) { helpers.add([&, seat] { all->help(seat); }); };
  crew c(2, call);
  all = &c;
  std::atomic<bool> has_begun = false, has_ended = false;
  c.run(2, [&](extent i) {
    if (i == 0) {
      while (!has_begun) std::this_thread::yield();
    } else {
      has_begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_ended = true;
    }
  });
  CHECK(has_ended);
  c.end();
  helpers.clear();
}

TEST_CASE("threads come and go, and each task is called once", "[crew]") {
  for (const extent threads : {extent{2}, extent{5}, crew::most + 9}) {
    helper_threads helpers;
    crew* all = nullptr;
    const auto call = [&](extent seat) { helpers.add([&, seat] { all->help(seat); }); };
    crew c(threads, call);
    all = &c;
    CHECK(c.size() <= crew::most);
    extent plain = 0;  // what the tasks of a region write is seen after it, and in the next one
    for (extent region = 0; region < 400; ++region) {
      if (region % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<extent> squares(1 + region % 40);
      std::vector<std::atomic<int>> counts(squares.size());
      c.run(squares.size(), [&](extent i) {
        ++counts[i];
        squares[i] = plain + i * i;
      });
      REQUIRE(std::ranges::all_of(counts, [](int count) { return count == 1; }));
      for (extent i = 0; i < squares.size(); ++i) REQUIRE(squares[i] == plain + i * i);
      plain += squares.back();
    }
    c.end();
    helpers.clear();
  }
}

}  // namespace
