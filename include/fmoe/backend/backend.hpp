// SPDX-License-Identifier: MIT
// The seam between the planner and the machines that run its programs. A backend turns a lowered
// program into an executable; nothing above this header knows which backend it is.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include <fmoe/arrays/array_view.hpp>
#include <fmoe/arrays/table_rows.hpp>
#include <fmoe/base/function_ref.hpp>
#include <fmoe/base/separate.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/planner/options.hpp>

namespace fmoe {

namespace ir {
struct leaf_node;
}

namespace planner {
struct program;
struct operation;
}  // namespace planner

// True for the types of a backend's streams, the queues of a device's work: specialise it.
template <class Stream>
inline constexpr bool is_stream = false;

// A stream that a call joins, as its backend knows it.
struct stream_handle {
  void* stream;  // null may be a stream, too
};

// What a screen tells before it computes scores in full, where other screens have other columns of
// the same rows. A backend that does not screen leaves it alone.
struct score_bounds {
  std::size_t each;  // bounds of a row
  // [rows, each]: of so many columns the scores are at least as great; -infinity for none.
  std::span<float> lower;
  // [rows]: columns whose scores are smaller need not be kept. `tell` makes it, once in a call.
  std::span<float> least;
  detail::function_ref<void()> tell;
  bool is_told = false;
};

// The arrays of a call, which joins a stream if the caller names one.
struct call_arrays {
  std::span<const detail::bound_array> arguments, results;
  std::size_t tokens;
  std::optional<stream_handle> on{};
  std::size_t keep = all;  // entries that each top_k and product_top_k keeps at most
  // Results that the call adds to: executable::can_add, and arrays with plain rows.
  std::span<const bool> adds{};
  // By result: the rows that a sparse one has. The call lists them, after those that it adds to.
  std::span<detail::table_rows* const> tables{};
  score_bounds* bounds = nullptr;  // of the first selection that is screened
};

// A program that is ready to run, with its weights and the memory of its callers. Many threads may
// call it.
class executable {
 public:
  // Calls bind arrays of the host, and those that lie at `where`.
  explicit executable(place where = {}) : where_(where) {}
  executable(const executable&) = delete;
  virtual ~executable() = default;

  // Computes the results for `tokens` rows of the arguments. Shapes and types are the program's,
  // and the caller has checked them. The call waits while `callers` others run. On a stream it may
  // return before the results are there. Throws value_error for an array or a stream of another
  // device.
  void run(const call_arrays& call) const;

  // True if a call can add to a result, which has no tokens, in blocks of as many tokens as its
  // sums have.
  virtual bool can_add(std::size_t) const { return false; }

  // Says how a result is sparse, if it is: plan_options::tables.
  virtual std::optional<detail::sparse_result> sparse(std::size_t) const { return {}; }

  // True if a call reads or writes the weights or the gradients of each expert that it selects: the
  // fewer the calls, the better.
  virtual bool goes_by_expert() const { return false; }

  // Reads the leaves of the program again that are marked; the others are as they were. Types and
  // shapes are those of the program. Returns false, and does nothing, if the executable cannot:
  // then it must be made again. No call runs at the same time.
  virtual bool refresh(std::span<const ir::leaf_node>, std::span<const bool>) { return false; }

 private:
  virtual void run_here(const call_arrays& call) const = 0;

  place where_;
};

// A way to run programs: it says what it supports and turns a lowered program into an executable.
class backend {
 public:
  // A lowered program and how it shall be compiled. The arithmetic is done in `type`, or more
  // precisely.
  struct job {
    const planner::program& program;
    dtype type;
    std::size_t tokens;   // of the largest call
    std::size_t callers;  // that may run at the same time
    std::size_t threads;  // of a call
    const planner::plan_options& how;
  };

  // Describes in words what a backend made of a program.
  struct description {
    std::string layout;       // how the steps use the machine; empty where there is nothing to say
    std::string steps;        // a line each
    std::string dot;          // the same as a drawing for Graphviz
    double seconds = 0;       // of a call, as predicted; 0 where a backend predicts none
    bool has_threads = true;  // do a call's threads share it?
    std::size_t packed = 0;   // bytes that it makes of the weights, in the form that its steps read
    std::size_t call = 0;     // bytes of each call that runs at the same time
    bool tells_bounds = false;  // a screen of its steps makes call_arrays::bounds
  };

  virtual ~backend() = default;

  virtual std::string name() const = 0;

  // The machine that programs of this arithmetic type are planned for.
  virtual fmoe::machine machine(dtype type) const = 0;

  // And what its kernels can do, on this machine or another.
  virtual planner::kernel_facts kernels(dtype) const { return {}; }

  // Returns the reason why an operation cannot run here, for an error message, or nullopt if it
  // can.
  virtual std::optional<std::string> refusal(const planner::operation& o) const = 0;

  // Throws value_error, with the operation and the expression that it comes from, if an operation
  // cannot run here.
  std::unique_ptr<executable> compile(const job& work) const;
  description explain(const job& work) const;

 private:
  void check(const planner::program& program) const;
  virtual std::unique_ptr<executable> compiled(const job& work) const = 0;
  virtual description explained(const job& work) const = 0;
};

// Says how `compile` and `evaluate` make a layer ready. All members have defaults, so a call names
// only those that it changes: compile(layer, 128, {.callers = 4}). 0 callers or threads throw
// value_error.
struct compile_options {
  std::shared_ptr<const backend> on{};  // empty: the CPU that runs the program
  std::size_t callers = all;            // calls that may run at the same time: others wait. The
                              // memory of each is reserved by compile; with `all`, that of
                              // the first, and of others when they first meet
  std::size_t threads = all;          // of a call, at most; `all`: as many as the arena has in
                                      // which the layer is compiled
  bool naive = false;                 // contract parameters with each other first, as a
                                      // measure of what the factorized order saves
  bool screen = true;                 // select by 16-bit scores where that pays; same bits
  std::optional<fmoe::machine> as{};  // plan for this machine instead of the backend's own
  bool tune = false;                  // run the most promising shapes of the plan on random rows,
                                      // and keep the quickest; same bits
  std::optional<plan_shape> shape{};  // instead of the one that the planner chooses; same bits
  // compile_gradients: a table of which tokens select rows has a gradient of the selected rows
  // alone, `sparse_gradient`, with room for the rows of so many tokens; with `all`, for those of a
  // call. 0: gradients are as large as the parameters.
  std::size_t sparse_gradients = 0;
  std::size_t sum_block = 256;  // terms of a product that are summed by themselves;
                                // part of the result's bits
  bool bf16_products = false;  // on a CPU, a product of floats with weights of bf16 rounds its rows
                               // to bf16, too: to at most 2^-9 of each number. AVX512_BF16 may
                               // double its speed, and AMX makes it several times as fast. Part
                               // of the result's bits, which AMX and ARM64's BFMMLA change
  bool int8_products = false;  // on a CPU, a product of floats with weights of q8 rounds its rows
                               // to 8 bits, too: 32 numbers to at most 1/254 of their greatest one.
                               // It may be three times as fast. Part of the result's bits
  bool keep_weights = true;  // if false, a compiled layer keeps only what its steps read, packed or
                             // not, and cannot be refreshed: drop the layer, and its memory is free
};

}  // namespace fmoe

namespace fmoe::detail {

// Options with a name that `threads` has elsewhere, {.thread = 2}, which compile and evaluate
// refuse. Compilers do not name a member that no candidate has.
union misnamed_options_of_threads {
  struct number {
    number(std::integral auto) {}
  } thread, num_threads, n_threads;
};

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/backend/backend-inl.hpp>
#endif
