// SPDX-License-Identifier: MIT
// Streams and events of emulated devices. A stream runs its operations at once, or when somebody
// waits for it; then the operations of all streams take turns, so that two calls that share memory
// by mistake meet in it. A stream that is captured only keeps its operations, as a graph.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <fmoe/backend/cuda/emulated/block_runner.hpp>

namespace fmoe::cuda {

// The operations of a capture, in order.
struct emulated_graph {
  std::vector<std::function<void(block_runner&)>> operations;
};

// Errors have the words of CUDA.
[[noreturn]] inline void fail_as_cuda(const std::string& what, const char* why) {
  throw error("[cuda] " + what + ": " + why);
}

// CUDA refuses waits, copies of the host and allocations while a stream is captured.
inline std::atomic<int> captured_streams{0};
inline void expects_no_capture(const char* what) {
  if (captured_streams != 0) fail_as_cuda(what, "operation not permitted when stream is capturing");
}

// A moment in the work of a stream: the last one that was recorded.
class emulated_event {
 public:
  struct moments {
    std::atomic<extent> recorded{0}, reached{0};
    std::atomic<const emulated_graph*> captured_in{nullptr};
  };

  bool has_passed() const { return state_->reached == state_->recorded; }
  const std::shared_ptr<moments>& state() const { return state_; }

 private:
  std::shared_ptr<moments> state_ = std::make_shared<moments>();
};

class emulated_stream {
 public:
  emulated_stream(int device, stream_order order, std::unique_ptr<block_runner> runner)
      : device_(device),
        order_(order),
        runner_(std::move(runner)) {
    const std::lock_guard lock(all().mutex);
    all().streams.push_back(this);
  }
  emulated_stream(const emulated_stream&) = delete;
  ~emulated_stream() {
    const std::lock_guard lock(all().mutex);
    std::erase(all().streams, this);
  }

  int device() const { return device_; }
  const emulated_graph* captured_in() const { return graph_; }
  // Ends the work of the stream, which takes no more.
  std::unique_ptr<block_runner> take_runner() {
    try {
      drain();
    } catch (...) {  // nobody asks for the results
    }
    return std::move(runner_);
  }

  // Runs f(runner) after what was put before. f owns what it needs.
  template <class F>
  void put(F f) {
    if (graph_ != nullptr) {
      graph_->operations.emplace_back(std::move(f));
    } else if (order_ == stream_order::at_once) {
      const std::lock_guard lock(mutex_);
      f(*runner_);
    } else if (order_ == stream_order::deferred) {
      put_later({{}, std::move(f)});
    }
  }

  void record(const emulated_event& e) {
    const auto& state = e.state();
    state->captured_in = graph_;
    if (graph_ != nullptr) return;
    const extent moment = ++state->recorded;
    if (order_ == stream_order::never) state->reached = moment;
    else put([state, moment](block_runner&) { state->reached = moment; });
  }

  // What is put behind this waits until the event has passed. An event of a capture takes the
  // stream into the capture.
  void wait_for(const emulated_event& e) {
    const auto& state = e.state();
    const emulated_graph* const of = state->captured_in;
    if (of == nullptr && graph_ != nullptr)
      fail_as_cuda("a wait", "dependency created on uncaptured work in another stream");
    if (of != nullptr) {
      join_capture_of(of);
      return;
    }
    const extent moment = state->recorded;
    const auto ready = [state, moment] { return state->reached >= moment; };
    if (order_ == stream_order::deferred) put_later({ready, [](block_runner&) {}});
    else if (!ready()) run_until(ready);
  }

  // Returns when all that was put has run.
  void finish() {
    expects_no_capture("a wait for a stream");
    drain();
  }
  // Returns when the event has passed.
  void finish(const emulated_event& e) {
    expects_no_capture("a wait for an event");
    if (order_ == stream_order::deferred) run_until([&] { return e.has_passed(); });
  }
  static void finish_all() {
    run_until([] {
      return std::ranges::all_of(all().streams,
                                 [](const emulated_stream* s) { return s->later_.empty(); });
    });
  }

  // From here to the end of the capture operations go to the graph.
  void begin_capture(emulated_graph& graph) {
    graph_ = &graph;
    ++captured_streams;
  }
  emulated_graph* end_capture() {
    const std::lock_guard lock(all().mutex);
    emulated_graph* const graph = graph_;
    for (emulated_stream* s : all().streams)
      if (s->graph_ == graph) s->graph_ = nullptr;
    --captured_streams;
    return graph;
  }
  void launch(const emulated_graph& graph) {
    for (const auto& f : graph.operations) put(f);
  }

 private:
  void drain() {
    if (order_ == stream_order::deferred) run_until([this] { return later_.empty(); });
  }

  struct operation {
    std::function<bool()> ready;  // empty: it is
    std::function<void(block_runner&)> run;
  };
  struct every_stream {
    std::mutex mutex;
    std::vector<emulated_stream*> streams;
  };
  static every_stream& all() {
    static every_stream& streams = *new every_stream;  // layers may outlive other static objects
    return streams;
  }

  void put_later(operation o) {
    const std::lock_guard lock(all().mutex);
    later_.push_back(std::move(o));
  }

  void join_capture_of(const emulated_graph* of) {
    const std::lock_guard lock(all().mutex);
    for (const emulated_stream* s : all().streams)
      if (s->graph_ == of) {
        graph_ = s->graph_;
        return;
      }
    fail_as_cuda("a wait", "the event was captured, and its capture has ended");
  }

  // Streams take turns, one operation each, until `done()`.
  static void run_until(const std::function<bool()>& done) {
    const std::lock_guard lock(all().mutex);
    while (!done()) {
      bool runs = false;
      for (emulated_stream* s : all().streams) {
        if (s->later_.empty() || (s->later_.front().ready && !s->later_.front().ready())) continue;
        const operation o = std::move(s->later_.front());
        s->later_.pop_front();
        o.run(*s->runner_);
        runs = true;
      }
      if (!runs) throw emulation_fault("a stream waits for an event that never comes");
    }
  }

  int device_;
  stream_order order_;
  std::unique_ptr<block_runner> runner_;
  std::mutex mutex_;             // of what runs at once
  std::deque<operation> later_;  // of a deferred stream
  emulated_graph* graph_ = nullptr;
};

}  // namespace fmoe::cuda
