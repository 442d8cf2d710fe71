// SPDX-License-Identifier: MIT
// Compares a layer with other implementations. All must agree before anything is timed. Then they
// are timed in interleaved rounds with the limits of the machine, and the counters are medians over
// the rounds.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmoe/cost.hpp>
#include <fmoe/explain.hpp>

#include "names.hpp"

namespace benchmark {
class State;
}

namespace fmoe::bench {

using form = std::function<void(tensor<float, 2>& y)>;

// rows x depth times depth x columns; a transposed weight is [columns, depth].
struct product {
  extent rows, depth, columns;
  const float* weight;
  bool transposed = false;
};

// One layer on one input.
struct contest {
  extent tokens, outputs;
  double flops, naive_flops;  // for all tokens, 2 for a multiply-add
  // the weights that a call touches, read once; the rows in and out
  double weight_bytes, row_bytes;
  double predicted = 0;  // seconds, by the planner; 0 if it was not asked
  // Rounding may exchange a choice between nearly equal scores, and with it a row.
  bool selects = false;
  form forward = {};
  std::function<void(extent first, extent count, tensor<float, 2>& y)> by_eigen =
      {};                              // some rows of y; may be empty
  std::function<form()> naive = {};    // makes the naive form; empty if it does not fit in memory
  std::vector<product> products = {};  // the dense products of the layer
};

// A layer compiled for the rows of x and the threads of the current arena.
form compiled_form(const auto& layer, const tensor<float, 2>& x,
                   const compile_options& options = {}) {
  using layer_t = decltype(compile(layer, x.shape()[0]));
  return [x, forward = std::make_shared<layer_t>(compile(layer, x.shape()[0], options))](auto& y) {
    (*forward)(x, y);
  };
}

// The bytes of a weight, with its part of a scale.
template <class T>
inline constexpr double bytes_of_weight = std::is_same_v<T, q8> ? 34.0 / 32 : sizeof(T);

// Returns the contest of `layer` on x; its weights have `element` bytes. `plain` is the same layer
// of float, for FLOPs and bytes.
contest contest_of(const auto& layer, const auto& plain, const tensor<float, 2>& x, extent outputs,
                   double element) {
  const auto [tokens, inputs] = x.shape();
  const cost_report c = cost(plain(x));
  const auto t = static_cast<double>(tokens), rows = 4 * t * static_cast<double>(inputs + outputs);
  const double weights = element / 4 * (c.factorized.bytes - rows);
  return {.tokens = tokens,
          .outputs = outputs,
          .flops = c.factorized.flops() * t,
          .naive_flops = 2 * c.naive_multiply_adds * t,
          .weight_bytes = weights,
          .row_bytes = rows,
          .predicted = explain(layer(x)).seconds,
          .forward = compiled_form(layer, x)};
}

// A layer of one size, which can run on `tokens` rows with the threads of the current arena.
struct model {
  virtual ~model() = default;
  virtual contest on(extent tokens) const = 0;
};
using make_model = std::function<std::unique_ptr<model>()>;

// Registers the rows of a layer: name/tokens:T/threads:P. The model is made for the first of its
// rows that runs, and freed when a row of another model runs.
void add_rows(const std::string& name, const make_model& make,
              std::vector<int> tokens = {1, 16, 128, 1024},
              const std::vector<int>& threads = {1, 2});

// Registers rows for float, bf16 and q8.
template <template <class> class Model, class Size>
void add_sizes(const std::string& layer, const Size& size) {
  const std::string name = layer + '/' + size.name;
  add_rows(name + "/float", [size] { return std::make_unique<Model<float>>(size); });
  add_rows(name + "/bf16", [size] { return std::make_unique<Model<bf16>>(size); });
  add_rows(name + "/q8", [size] { return std::make_unique<Model<q8>>(size); });
}

// Reports a wrong result: the row shows why, and the program fails.
void reject(benchmark::State& state, const char* why);

// main calls `add` to register rows, of tiny layers if asked. A suite adds itself when it is
// defined.
struct suite {
  explicit suite(std::function<void(bool tiny)> add);
};

// Returns the largest difference in each row, divided by the largest element of b.
std::vector<double> differences(const tensor<float, 2>& a, const tensor<float, 2>& b);

// What `--cuda` runs, with the arguments behind it, in a program that has the kernels of GPUs.
struct gpu_program {
  explicit gpu_program(std::function<int(std::span<char*>)> run);
};

}  // namespace fmoe::bench
