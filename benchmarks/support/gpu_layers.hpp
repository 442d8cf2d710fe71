// SPDX-License-Identifier: MIT
// The layers of `fmoe_bench --cuda`, with random weights. A layer can be written to a file, from
// which benchmarks/peers/torch_gpu.py reads it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <fmoe/io/safetensors.hpp>

#include "random.hpp"

namespace fmoe::bench {

using any_rows = expr<float, 2>;

struct gpu_layer {
  std::string name, kind;  // `kind` names its equation in a file
  extent width;            // of rows, in and out
  bool selects;            // rounding may exchange a choice between nearly equal scores
  std::function<any_rows(const any_rows&)> forward;
  // Writes weights, rows and results.
  std::function<void(const std::string& file, const tensor<float, 2>& x, const tensor<float, 2>& y)>
      save;

  auto operator()(const auto& x) const { return forward(expr(x)); }
};

// Makes one layer.
using make_gpu_layer = std::function<gpu_layer()>;

// The layers of issue 17 and PEER, or tiny ones of the same kinds.
std::vector<make_gpu_layer> gpu_layers(bool tiny);

}  // namespace fmoe::bench
