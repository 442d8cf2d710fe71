// SPDX-License-Identifier: MIT
// A plan on a device, with memory for the calls that run at the same time. Arguments are copied to
// the device and results back; in between nothing is read on the host.
#pragma once

#include <condition_variable>
#include <mutex>

#include <fmoe/arrays/rows.hpp>
#include <fmoe/backend/backend.hpp>
#include <fmoe/backend/cuda/executor.hpp>

namespace fmoe::cuda {

// Lengths and places of the memory of a call, in elements.
template <class T>
struct call_layout {
  struct staged {  // an argument or a result, of all tokens
    extent number, offset, elements, stride;
    bool per_token;
  };

  explicit call_layout(const cpu::plan& p) {
    const auto take = [&](extent n) {
      constexpr extent line = 256 / sizeof(T);
      return std::exchange(elements, elements + round_up(n, line));
    };
    arena = take(p.arena);
    call = take(p.token_count * p.call + p.once);
    sums_room = cuda::sums_room(p);
    sums = take(sums_room);
    for (const cpu::storage_row& s : p.storages) {
      using enum cpu::storage_row::kind;
      if (s.where == argument)
        arguments.push_back({s.source, take(p.token_count * s.stride), s.elements, s.stride, true});
      if (s.where == output && std::ranges::count(results, s.source, &staged::number) == 0) {
        const bool per_token = p.results[s.source].per_token;
        results.push_back({s.source, take(per_token ? p.token_count * s.stride : s.elements),
                           s.elements, s.stride, per_token});
      }
    }
  }

  extent elements = 0, arena = 0, call = 0, sums = 0, sums_room = 0;
  std::vector<staged> arguments, results;
};

template <class T, class Device>
class device_executable final : public executable {
 public:
  device_executable(cpu::plan p, std::span<const ir::leaf_node> leaves, const Device& on,
                    extent callers, math how)
      : on_(on),
        preparation_(on_),
        run_(std::move(p), leaves, on_, preparation_, how),
        layout_(run_.steps()),
        callers_(callers) {
    const extent ready = callers == all ? 1 : callers;
    for (extent c = 0; c < ready; ++c) free_.push_back(std::make_unique<workspace>(*this));
  }

  void run(std::span<const bound_array> arguments, std::span<const bound_array> results,
           extent tokens) const override {
    const lease caller(*this);
    workspace& space = *caller.space;
    for (const auto& a : layout_.arguments) upload(arguments[a.number], a, tokens, space);
    const binding<T, queue> bound{.queue = space.work,
                                  .arguments = space.arguments,
                                  .results = space.results,
                                  .arena = space.memory.data() + layout_.arena,
                                  .call = space.memory.data() + layout_.call,
                                  .call_rows = run_.steps().token_count,
                                  .lists = space.lists.data(),
                                  .sums = space.memory.data() + layout_.sums,
                                  .sums_room = layout_.sums_room};
    for (const cpu::stage& stage : run_.steps().stages) {
      if (stage.per_call) {
        run_.run(bound, 0, tokens, stage);
        continue;
      }
      const extent tile = run_.steps().tile;
      for (extent first = 0; first < tokens; first += tile)
        run_.run(bound, first, std::min(tile, tokens - first), stage);
    }
    for (const auto& r : layout_.results) download(results[r.number], r, tokens, space);
  }

  static extent bytes_of_call(const cpu::plan& p) { return call_layout<T>(p).elements * sizeof(T); }

 private:
  using queue = typename Device::queue;
  using staged = typename call_layout<T>::staged;

  struct workspace {  // of one call
    explicit workspace(const device_executable& e)
        : work(e.on_),
          memory(e.on_, e.layout_.elements),
          lists(e.on_, e.run_.lists().sorted()),
          host(most_elements(e)) {
      for (const auto& a : e.layout_.arguments) {
        arguments.resize(std::max(arguments.size(), a.number + 1));
        arguments[a.number] = {memory.data() + a.offset, a.stride};
      }
      results.resize(e.run_.steps().results.size());
      for (const auto& r : e.layout_.results)
        results[r.number] = {memory.data() + r.offset, r.per_token ? r.stride : 0};
    }

    static extent most_elements(const device_executable& e) {
      extent n = 0;
      for (const auto* list : {&e.layout_.arguments, &e.layout_.results})
        for (const staged& s : *list)
          n = std::max(n, s.per_token ? e.run_.steps().token_count * s.stride : s.elements);
      return n;
    }

    queue work;
    device_array<Device, T> memory;
    device_array<Device, index> lists;
    std::vector<T> host;  // rows on their way
    std::vector<rows_at<const T>> arguments;
    std::vector<rows_at<T>> results;
  };

  struct lease {  // of a workspace, which is given back for the next call
    const device_executable& from;
    std::unique_ptr<workspace> space;

    explicit lease(const device_executable& e) : from(e) {
      std::unique_lock lock(e.mutex_);
      if (e.callers_ != all) e.released_.wait(lock, [&] { return !e.free_.empty(); });
      if (!e.free_.empty()) {
        space = std::move(e.free_.back());
        e.free_.pop_back();
        return;
      }
      lock.unlock();
      space = std::make_unique<workspace>(e);
    }
    lease(const lease&) = delete;
    ~lease() {
      {
        const std::lock_guard lock(from.mutex_);
        from.free_.push_back(std::move(space));
      }
      from.released_.notify_one();
    }
  };

  // One copy for all rows; the host's memory is used again for the next array.
  void upload(const bound_array& x, const staged& a, extent tokens, workspace& space) const {
    for (extent t = 0; t < tokens; ++t) detail::read_row(x, t, space.host.data() + t * a.stride);
    space.work.copy_in(space.memory.data() + a.offset, space.host.data(),
                       tokens * a.stride * sizeof(T));
    space.work.wait();
  }
  void download(const bound_array& y, const staged& r, extent tokens, workspace& space) const {
    const extent rows = r.per_token ? tokens : 1, stride = r.per_token ? r.stride : 0;
    space.work.copy_out(space.host.data(), space.memory.data() + r.offset,
                        (r.per_token ? rows * r.stride : r.elements) * sizeof(T));
    space.work.wait();
    if (r.elements == 0) return;
    for (extent t = 0; t < rows; ++t) detail::write_row(space.host.data() + t * stride, y, t);
  }

  Device on_;
  mutable queue preparation_;
  executor<T, Device> run_;
  call_layout<T> layout_;
  extent callers_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable std::vector<std::unique_ptr<workspace>> free_;  // which are not in use
};

}  // namespace fmoe::cuda
