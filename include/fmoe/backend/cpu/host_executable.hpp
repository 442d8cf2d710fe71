// SPDX-License-Identifier: MIT
// A plan that is ready to run on the CPU, with its weights and the memory of its calls.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include <fmoe/arrays/rows.hpp>
#include <fmoe/backend/cpu/executor.hpp>
#include <fmoe/backend/cpu/native.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/base/vector.hpp>

namespace fmoe::cpu {

// The memory of a call: an arena for each task, and what the whole call has. Lengths are in
// elements; all parts begin at a cache line.
template <class T>
struct call_memory {
  static constexpr extent line = cache_line / sizeof(T);

  explicit call_memory(const step_plan& p)
      : arena(round_up(p.arena, line)),
        whole(round_up(p.token_count * p.call + p.once, line)) {
    for (const storage_row& s : p.storages) {
      stages.push_back(arena);
      const bool is_output = s.where == storage_row::kind::output;
      if (is_output && !p.results[s.source].per_token) {
        stages.back() = once;
        if (!p.has_plain_sums) once += round_up(s.elements, line);
      } else if (is_output || s.where == storage_row::kind::argument) {
        arena += round_up(s.stride * p.tile, line);
      }
    }
  }

  extent bytes(extent tasks) const { return (tasks * arena + whole + once) * sizeof(T); }

  extent arena;           // of one task, including staged rows
  extent whole;           // what stages keep
  extent once = 0;        // staged results without tokens, which lie behind that
  vector<extent> stages;  // by storage: the start of its staged rows or result
};

// Returns the tasks of a call: as many as it may have threads.
inline extent tasks_of(extent threads) { return threads == all ? thread_count() : threads; }

// A plan with its weights and with memory for the calls that run at the same time: for a number of
// them that is told, or for as many as there are. A call allocates nothing, but for the first one
// that runs beside as many others as never before.
template <class T, class Level>
class host_executable final : public executable {
  static_assert(
      std::is_same_v<Level, native>,
      "kernels are those of the instruction set that their translation unit is compiled for");

 public:
  host_executable(step_plan p, std::span<const ir::leaf_node> leaves, extent callers,
                  extent threads)
      : run_(std::move(p), leaves, tasks_of(threads)),
        callers_(callers),
        slots_(tasks_of(threads)),
        tokens_(steps().token_count),
        memory_(steps()) {
    const extent ready = callers == all ? 1 : callers;
    for (extent c = 0; c < ready; ++c) free_.push_back(new_workspace());
  }

  bool refresh(std::span<const ir::leaf_node> leaves, std::span<const bool> changed) override {
    return run_.refresh(leaves, changed);
  }
  bool can_add(extent result) const override { return run_.can_add(result); }
  std::optional<sparse_result> sparse(extent result) const override {
    return steps().results[result].sparse;
  }
  bool goes_by_expert() const override {
    return std::ranges::any_of(steps().steps, [](const step& s) {
      const auto* const rows = get_if<selection_sum_step>(&s);
      return get_if<expert_sum_step>(&s) != nullptr || (rows != nullptr && rows->b.exists());
    });
  }

 private:
  void run_here(const call_arrays& arrays) const override {
    const std::span results = arrays.results;
    const extent tokens = arrays.tokens;
    if (is_empty(results, tokens)) return;
    const lease caller(*this);
    T* const arenas = reinterpret_cast<T*>(caller.space->block.data());
    T* const call = arenas + slots_ * memory_.arena;
    for (extent stage = 0; stage < steps().stages.size(); ++stage) {
      if (steps().stages[stage].per_call) {
        run_once(arrays, arenas, call, caller.space->tables, stage);
        continue;
      }
      const extent tiles = bounds_of(arrays) != nullptr ? 1 : tile_count(steps(), tokens, slots_);
      std::atomic<extent> next{0};
      parallel(std::min(slots_, tiles), [&](extent task) noexcept {
        for (extent i = next++; i < tiles; i = next++) {
          const extent first = tokens * i / tiles;
          tile(arrays, first, tokens * (i + 1) / tiles - first, caller, task,
               std::min(slots_, tiles), stage);
        }
      });
    }
    for (extent s = 0; s < memory_.stages.size(); ++s) {
      const storage_row& row = steps().storages[s];
      if (row.where != storage_row::kind::output || result_of(row).per_token) continue;
      const bound_array& y = results[row.source];
      if (!y.has_plain_rows()) detail::write_row(call + memory_.whole + memory_.stages[s], y, 0);
    }
  }

  const step_plan& steps() const { return run_.steps(); }

  // The addresses of the rows of one task's tile, by the numbers of arguments and results.
  struct row_table {
    vector<rows_of<const T>> arguments;
    vector<rows_of<T>> results;

    explicit row_table(const step_plan& p) : results(p.results.size()) {
      for (const storage_row& s : p.storages)
        if (s.where == storage_row::kind::argument)
          arguments.resize(std::max(arguments.size(), s.source + 1));
    }
  };

  const plan_result& result_of(const storage_row& s) const { return steps().results[s.source]; }

  bool is_empty(std::span<const bound_array> results, extent tokens) const {
    for (extent i = 0; i < results.size(); ++i) {
      const bool has_rows = !steps().results[i].per_token || tokens != 0;
      if (has_rows && results[i].row_size() != 0) return false;
    }
    return true;
  }

  // A stage that runs once for the whole call: its steps' parts go to as many tasks as threads.
  void run_once(const call_arrays& arrays, T* arenas, T* call, vector<row_table>& tables,
                extent stage) const {
    const extent tokens = arrays.tokens;
    const extent parts = run_.parts(stage, tokens, slots_);
    bind_whole(arrays.results, call, tables[0]);
    run_.list_rows(binding_of(arrays, tables[0], call), tokens, stage);
    std::atomic<extent> next{0};
    parallel(std::min(slots_, parts), [&](extent task) noexcept {
      row_table& rows = tables[task];
      bind_whole(arrays.results, call, rows);
      const binding<T> bound = binding_of(arrays, rows, call);
      for (extent part = next++; part < parts; part = next++)
        run_.run_part(bound, tokens, arenas + task * memory_.arena, stage, part, slots_);
    });
  }

  // Results without tokens are written where they lie, or behind the call's memory and copied when
  // they are complete.
  void bind_whole(std::span<const bound_array> results, T* call, row_table& rows) const noexcept {
    for (extent s = 0; s < memory_.stages.size(); ++s) {
      const storage_row& row = steps().storages[s];
      if (row.where != storage_row::kind::output || result_of(row).per_token) continue;
      const extent i = row.source;
      const bound_array& y = results[i];
      T* const staged = call + memory_.whole + memory_.stages[s];
      rows.results[i] = {.data = y.has_plain_rows() ? static_cast<T*>(y.array.data) : staged};
    }
  }

  binding<T> binding_of(const call_arrays& arrays, const row_table& rows, T* call) const noexcept {
    return {.arguments = rows.arguments,
            .results = rows.results,
            .call = call,
            .call_rows = tokens_,
            .keep = arrays.keep,
            .adds = arrays.adds,
            .tables = arrays.tables,
            .bounds = bounds_of(arrays)};
  }

  // Bounds are told for all rows at once, so these go through the plan in one tile.
  score_bounds* bounds_of(const call_arrays& arrays) const noexcept {
    return arrays.tokens <= steps().tile ? arrays.bounds : nullptr;
  }

  struct workspace {  // the memory of one call
    memory block;
    vector<row_table> tables;  // by task
  };

  std::unique_ptr<workspace> new_workspace() const {
    return std::make_unique<workspace>(
        workspace{memory(memory_.bytes(slots_)), vector<row_table>(slots_, row_table(steps()))});
  }

  struct lease {  // of a workspace, which is given back for the next call
    const host_executable& from;
    std::unique_ptr<workspace> space;

    explicit lease(const host_executable& p) : from(p) {
      std::unique_lock lock(p.mutex_);
      if (p.callers_ != all) p.released_.wait(lock, [&] { return !p.free_.empty(); });
      if (!p.free_.empty()) {
        space = std::move(p.free_.back());
        p.free_.pop_back();
        return;
      }
      p.free_.reserve(++p.made_);
      lock.unlock();
      space = p.new_workspace();
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

  // Binds the arrays. Rows that are not plain, or of another type, are copied to memory beside the
  // arena and back.
  void tile(const call_arrays& arrays, extent first, extent count, const lease& caller, extent task,
            extent tasks, extent stage) const noexcept {
    const std::span arguments = arrays.arguments, results = arrays.results;
    T* const arenas = reinterpret_cast<T*>(caller.space->block.data());
    T *const arena = arenas + task * memory_.arena, *const call = arenas + slots_ * memory_.arena;
    row_table& rows = caller.space->tables[task];
    const binding<T> bound = binding_of(arrays, rows, call);
    bind_whole(results, call, rows);
    for (extent s = 0; s < memory_.stages.size(); ++s) {
      const storage_row& row = steps().storages[s];
      T* const staged = arena + memory_.stages[s];
      const extent i = row.source;
      if (row.where == storage_row::kind::output) {
        if (!result_of(row).per_token) continue;
        const bound_array& y = results[i];
        rows.results[i] = {.data = staged, .stride = row.stride};
        if (y.has_plain_rows())
          rows.results[i] = {.data = static_cast<T*>(y.array.data) + first * y.row_stride(),
                             .stride = y.row_stride()};
      } else if (row.where == storage_row::kind::argument) {
        const bound_array& x = arguments[i];
        rows.arguments[i] = {.data = staged, .stride = row.stride};
        if (x.array.type == dtype_of<T> && x.has_plain_rows())
          rows.arguments[i] = {.data = static_cast<const T*>(x.array.data) + first * x.row_stride(),
                               .stride = x.row_stride()};
        else
          for (extent t = 0; t < count; ++t)
            detail::read_row(x, first + t, staged + t * row.stride);
      }
    }
    // The threads beyond the tasks help them; their arenas lie behind those of the tasks.
    const extent threads = slots_ / tasks, others = tasks + task * (threads - 1) - task;
    with_crew(threads, [&](crew& c) {
      run_.run(bound, first, count, arena, stage, c, others * memory_.arena, memory_.arena);
    });
    for (extent i = 0; i < results.size(); ++i) {
      const plan_result& result = steps().results[i];
      const bool is_made_here = result.per_token && result.made_in == stage;
      if (!is_made_here || results[i].has_plain_rows()) continue;
      const rows_of<T>& made = rows.results[i];
      for (extent t = 0; t < count; ++t)
        detail::write_row(made.data + t * made.stride, results[i], first + t);
    }
  }

  executor<T, native_arch> run_;
  extent callers_, slots_, tokens_;
  call_memory<T> memory_;
  mutable std::mutex mutex_;
  mutable std::condition_variable released_;
  mutable extent made_ = 1;                          // workspaces, if callers_ is `all`
  mutable vector<std::unique_ptr<workspace>> free_;  // which are not in use
};

}  // namespace fmoe::cpu
