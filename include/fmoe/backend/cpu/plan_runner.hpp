// SPDX-License-Identifier: MIT
// What a compiled plan is behind its declaration: planner and kernels are instantiated here and
// nowhere above.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include <fmoe/backend/cpu/compiled_plan.hpp>
#include <fmoe/backend/cpu/executor.hpp>
#include <fmoe/backend/cpu/machine.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/planner/planner.hpp>

namespace fmoe::cpu {

template <class T, class Arch>
class plan_runner {
  static_assert(
      std::is_same_v<Arch, native>,
      "kernels are those of the instruction set that their translation unit is compiled for");

 public:
  plan_runner(const ir::graph& g, const ir::node_list& results, extent tokens, extent callers,
              const planner::plan_options& options)
      : run_(compiled_plan<T, Arch>::plan_of(g, results, tokens, options), g),
        slots_(thread_count()),
        tokens_(tokens) {
    arena_ = round_up(steps().arena, line);
    for (const storage_row& s : steps().storages) {
      stages_.push_back(arena_);
      if (s.where == storage_row::kind::argument || s.where == storage_row::kind::output)
        arena_ += round_up(s.elements * steps().tile, line);
    }
    for (extent c = 0; c < callers; ++c) {
      memory_.emplace_back((slots_ * arena_ + tokens_ * steps().call) * sizeof(T));
      tables_.emplace_back(slots_, row_table(steps()));
      free_.push_back(c);
    }
  }

  const plan& steps() const { return run_.steps(); }

  void operator()(std::span<const bound_array> arguments, std::span<const bound_array> results,
                  extent tokens) const {
    if (tokens == 0 ||
        std::ranges::all_of(results, [](const bound_array& y) { return y.row_size() == 0; }))
      return;
    const lease caller(*this);
    T* const arenas = reinterpret_cast<T*>(memory_[caller.index].data());
    for (extent stage = 0; stage < run_.stages(); ++stage) {
      const extent tiles = run_.is_barrier(stage) ? 1 : tile_count(steps(), tokens, slots_);
      std::atomic<extent> next{0};
      parallel(std::min(slots_, tiles), [&](extent task) noexcept {
        for (extent i = next++; i < tiles; i = next++) {
          const extent first = tokens * i / tiles;
          tile(arguments, results, first, tokens * (i + 1) / tiles - first, arenas + task * arena_,
               arenas + slots_ * arena_, tables_[caller.index][task], stage,
               std::max<extent>(1, slots_ / tiles));
        }
      });
    }
  }

 private:
  static constexpr extent line = cache_line / sizeof(T);

  // Where the rows of one task's tile are, by number of the argument and of the result.
  struct row_table {
    std::vector<rows_of<const T>> arguments;
    std::vector<rows_of<T>> results;

    explicit row_table(const plan& p) : results(p.results.size()) {
      for (const storage_row& s : p.storages)
        if (s.where == storage_row::kind::argument)
          arguments.resize(std::max(arguments.size(), static_cast<extent>(s.source) + 1));
    }
  };

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

  // Binds the arrays; rows that are not plain, or of another type, are copied beside the arena and
  // back.
  void tile(std::span<const bound_array> arguments, std::span<const bound_array> results,
            extent first, extent count, T* arena, T* call, row_table& rows, extent stage,
            extent threads) const noexcept {
    const binding<T> bound{rows.arguments, rows.results, call, tokens_};
    if (run_.is_barrier(stage)) return run_.run(bound, first, count, arena, stage);
    for (extent s = 0; s < stages_.size(); ++s) {
      const storage_row& row = steps().storages[s];
      T* const staged = arena + stages_[s];
      const auto i = static_cast<extent>(row.source);
      if (row.where == storage_row::kind::output) {
        const bound_array& y = results[i];
        rows.results[i] = {staged, row.elements};
        if (y.has_plain_rows())
          rows.results[i] = {static_cast<T*>(y.array.data) + first * y.row_stride(),
                             y.row_stride()};
      } else if (row.where == storage_row::kind::argument) {
        const bound_array& x = arguments[i];
        rows.arguments[i] = {staged, row.elements};
        if (x.array.type == dtype_of<T> && x.has_plain_rows())
          rows.arguments[i] = {static_cast<const T*>(x.array.data) + first * x.row_stride(),
                               x.row_stride()};
        else
          for (extent t = 0; t < count; ++t) read_row(x, first + t, staged + t * row.elements);
      }
    }
    run_.run(bound, first, count, arena, stage, threads);
    if (stage + 1 < run_.stages()) return;
    for (extent i = 0; i < results.size(); ++i) {
      const bound_array& y = results[i];
      if (y.has_plain_rows()) continue;
      for (extent t = 0; t < count; ++t)
        each_element(y, first + t,
                     [&, from = rows.results[i].data + t * rows.results[i].stride](
                         extent at) mutable { static_cast<T*>(y.array.data)[at] = *from++; });
    }
  }

  // f(offset) for the elements of one row in row-major order.
  template <class F>
  static void each_element(const bound_array& x, extent token, F f) noexcept {
    const array_view& v = x.array;
    const extent base = v.row_offset(x.row_rank, token), n = x.row_size();
    for (extent i = 0; i < n; ++i) {
      extent at = base, rest = i;
      for (extent a = v.rank; a-- > v.rank - x.row_rank;) {
        at += rest % v.shape[a] * v.strides[a];
        rest /= v.shape[a];
      }
      f(at);
    }
  }

  static void read_row(const bound_array& x, extent token, T* to) noexcept {
    with_type(x.array.type, [&](auto* type) {
      const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(x.array.data);
      each_element(x, token, [&](extent at) { *to++ = convert<T>(from[at]); });
    });
  }

  executor<T, native_arch> run_;
  extent slots_, tokens_;
  extent arena_ = 0;            // elements of one task, staged rows included
  std::vector<extent> stages_;  // by storage: where its staged rows start
  std::vector<memory> memory_;  // by caller
  mutable std::vector<std::vector<row_table>> tables_;  // by caller and task
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable std::vector<extent> free_;  // callers' memory that is not in use
};

// Outside the class: members of an extern template that are inline would be compiled all the same.
template <class T, class Arch>
compiled_plan<T, Arch>::compiled_plan(const ir::graph& g, const ir::node_list& results,
                                      extent tokens, extent callers,
                                      const planner::plan_options& options)
    : runner_(std::make_unique<const plan_runner<T, Arch>>(g, results, tokens, callers, options)) {}
template <class T, class Arch>
compiled_plan<T, Arch>::compiled_plan(compiled_plan&&) noexcept = default;
template <class T, class Arch>
compiled_plan<T, Arch>::~compiled_plan() = default;

template <class T, class Arch>
plan compiled_plan<T, Arch>::plan_of(const ir::graph& g, const ir::node_list& results,
                                     extent tokens, const planner::plan_options& options) {
  return planner::make_plan(g, results, tokens, machine<T, native_arch>(options));
}

template <class T, class Arch>
const plan& compiled_plan<T, Arch>::steps() const {
  return runner_->steps();
}

template <class T, class Arch>
void compiled_plan<T, Arch>::operator()(std::span<const bound_array> arguments,
                                        std::span<const bound_array> results, extent tokens) const {
  (*runner_)(arguments, results, tokens);
}

}  // namespace fmoe::cpu
