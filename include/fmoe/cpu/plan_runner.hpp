// SPDX-License-Identifier: MIT
// What a compiled plan is behind its declaration: planner and kernels are instantiated here and nowhere above.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include <fmoe/cpu/compiled_plan.hpp>
#include <fmoe/cpu/executor.hpp>
#include <fmoe/cpu/machine.hpp>
#include <fmoe/cpu/parallel.hpp>
#include <fmoe/plan/planner.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class plan_runner {
  static_assert(std::is_same_v<Arch, native>, "kernels are those of the instruction set that their translation unit is compiled for");

 public:
  plan_runner(const graph& g, node_id result, extent tokens, extent callers, const plan_options& options)
      : run_(compiled_plan<T, Arch>::plan_of(g, result, tokens, options), g), slots_(thread_count()), tokens_(tokens) {
    arena_ = round_up(steps().arena, line);
    for (const storage_row& s : steps().storages) {
      stages_.push_back(arena_);
      if (s.where == storage_row::kind::argument || s.where == storage_row::kind::output)
        arena_ += round_up(s.elements * steps().tile, line);
    }
    for (extent c = 0; c < callers; ++c) {
      memory_.emplace_back((slots_ * arena_ + tokens_ * steps().call) * sizeof(T));
      free_.push_back(c);
    }
  }

  const plan& steps() const { return run_.steps(); }

  void operator()(std::span<const array_view> arguments, std::span<const extent> row_ranks, const array_view& result,
                  extent result_row_rank, extent tokens) const {
    if (tokens == 0 || result.row_size(result_row_rank) == 0) return;
    const lease caller(*this);
    T* const arenas = reinterpret_cast<T*>(memory_[caller.index].data());
    for (extent stage = 0; stage < run_.stages(); ++stage) {
      const extent tiles = run_.is_barrier(stage) ? 1 : tile_count(steps(), tokens, slots_);
      std::atomic<extent> next{0};
      parallel(std::min(slots_, tiles), [&](extent task) noexcept {
        for (extent i = next++; i < tiles; i = next++) {
          const extent first = tokens * i / tiles;
          tile(arguments, row_ranks, result, result_row_rank, first, tokens * (i + 1) / tiles - first, arenas + task * arena_,
               arenas + slots_ * arena_, stage, std::max<extent>(1, slots_ / tiles));
        }
      });
    }
  }

 private:
  static constexpr extent line = cache_line / sizeof(T);

  struct lease {  // one caller's memory
    const plan_runner& from;
    extent index;

    explicit lease(const plan_runner& p) : from(p) {
      std::unique_lock lock(p.mutex_);
      p.released_.wait(lock, [&] { return !p.free_.empty(); });
      index = p.free_.back();
      p.free_.pop_back();
    }
    lease(const lease&) = delete;
    ~lease() {
      {
        const std::lock_guard lock(from.mutex_);
        from.free_.push_back(index);
      }
      from.released_.notify_one();
    }
  };

  // Binds the arrays; rows that are not plain, or of another type, are copied beside the arena and back.
  void tile(std::span<const array_view> arguments, std::span<const extent> row_ranks, const array_view& result,
            extent result_row_rank, extent first, extent count, T* arena, T* call, extent stage, extent threads) const noexcept {
    binding<T> bound;
    bound.call = call;
    bound.call_rows = tokens_;
    if (run_.is_barrier(stage)) return run_.run(bound, first, count, arena, stage);
    T* staged_result = nullptr;
    for (extent s = 0; s < stages_.size(); ++s) {
      const storage_row& row = steps().storages[s];
      if (row.where == storage_row::kind::output) staged_result = arena + stages_[s];
      if (row.where != storage_row::kind::argument) continue;
      const auto i = static_cast<extent>(row.source);
      const array_view& x = arguments[i];
      if (x.type == dtype_of<T> && x.has_plain_rows(row_ranks[i])) {
        const extent stride = x.row_stride(row_ranks[i]);
        bound.arguments[i] = {static_cast<const T*>(x.data) + first * stride, stride};
      } else {
        T* const copy = arena + stages_[s];
        for (extent t = 0; t < count; ++t) read_row(x, row_ranks[i], first + t, copy + t * row.elements);
        bound.arguments[i] = {copy, row.elements};
      }
    }
    const extent width = result.row_size(result_row_rank);
    const bool direct = result.has_plain_rows(result_row_rank);
    const extent stride = direct ? result.row_stride(result_row_rank) : width;
    bound.result = {direct ? static_cast<T*>(result.data) + first * stride : staged_result, stride};
    run_.run(bound, first, count, arena, stage, threads);
    if (!direct && stage + 1 == run_.stages())
      for (extent t = 0; t < count; ++t)
        each_element(result, result_row_rank, first + t, [&, from = staged_result + t * width](extent at) mutable {
          static_cast<T*>(result.data)[at] = *from++;
        });
  }

  // f(offset) for the elements of one row in row-major order.
  template <class F>
  static void each_element(const array_view& x, extent row_rank, extent token, F f) noexcept {
    const extent base = x.row_offset(row_rank, token), n = x.row_size(row_rank);
    for (extent i = 0; i < n; ++i) {
      extent at = base, rest = i;
      for (extent a = x.rank; a-- > x.rank - row_rank;) {
        at += rest % x.shape[a] * x.strides[a];
        rest /= x.shape[a];
      }
      f(at);
    }
  }

  static void read_row(const array_view& x, extent row_rank, extent token, T* to) noexcept {
    with_type(x.type, [&](auto* type) {
      const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(x.data);
      each_element(x, row_rank, token, [&](extent at) { *to++ = convert<T>(from[at]); });
    });
  }

  executor<T, native_arch> run_;
  extent slots_, tokens_;
  extent arena_ = 0;            // elements of one task, staged rows included
  std::vector<extent> stages_;  // by storage: where its staged rows start
  std::vector<memory> memory_;  // by caller
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable std::vector<extent> free_;  // callers' memory that is not in use
};

// Outside the class: members of an extern template that are inline would be compiled all the same.
template <class T, class Arch>
compiled_plan<T, Arch>::compiled_plan(const graph& g, node_id result, extent tokens, extent callers, const plan_options& options)
    : runner_(std::make_unique<const plan_runner<T, Arch>>(g, result, tokens, callers, options)) {}
template <class T, class Arch>
compiled_plan<T, Arch>::compiled_plan(compiled_plan&&) noexcept = default;
template <class T, class Arch>
compiled_plan<T, Arch>::~compiled_plan() = default;

template <class T, class Arch>
plan compiled_plan<T, Arch>::plan_of(const graph& g, node_id result, extent tokens, const plan_options& options) {
  return make_plan(g, result, tokens, machine<T, native_arch>(options));
}

template <class T, class Arch>
const plan& compiled_plan<T, Arch>::steps() const {
  return runner_->steps();
}

template <class T, class Arch>
void compiled_plan<T, Arch>::operator()(std::span<const array_view> arguments, std::span<const extent> row_ranks,
                                        const array_view& result, extent result_row_rank, extent tokens) const {
  (*runner_)(arguments, row_ranks, result, result_row_rank, tokens);
}

}  // namespace fmoe::cpu
