// SPDX-License-Identifier: MIT
// Two ways to train an MxD over ranks. Data-parallel: each rank computes the gradients of its parts
// of a batch, all get their sum, and each takes the same step. Expert-parallel: each rank has some
// experts, and their gradients and state of the optimizer. Ranks are threads in
// train_over_ranks.cpp, and processes of an MPI job in tests/mpi/train.cpp.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <fmoe/distributed.hpp>
#include <fmoe/gradients.hpp>
#include <fmoe/io/safetensors.hpp>
#include <fmoe/layers/initialise.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/optimizers.hpp>

#include "training.hpp"

namespace training {

// 1,024 tokens, in parts of 256: a rank has all of them, two, or one.
constexpr std::size_t tokens_of_part = 256, parts_of_batch = 4;

struct row_pairs {
  fmoe::tensor<float, 2> x, target;
};

inline row_pairs read_rows() {
  const auto read = fmoe::io::safetensors::read("examples/data/minilm_l3_rows.safetensors");
  return {read.get<float, 2>("x"), read.get<float, 2>("target")};
}

// 64 experts and 32 hidden units, with weights that follow from the seed alone.
inline fmoe::mxd<> initial_layer(std::size_t inputs, std::size_t outputs) {
  fmoe::random_stream random(1);
  const auto drawn = [&](std::size_t rows, std::size_t columns) {
    fmoe::tensor<float, 2> w({rows, columns});
    const double bound = 1 / std::sqrt(static_cast<double>(rows));
    for (float& v : w) v = static_cast<float>(random.uniform() * bound);
    return w;
  };
  fmoe::mxd<> l;
  l.encoder = drawn(inputs, 32);
  l.encoder_bias = fmoe::tensor<float, 1>({32});
  l.gate = drawn(inputs, 64);
  l.gate_bias = fmoe::tensor<float, 1>({64});
  l.scales = drawn(64, outputs);
  l.decoder = drawn(32, outputs);
  l.bias = fmoe::tensor<float, 1>({outputs});
  l.active = 8;
  return l;
}

struct trained {
  fmoe::mxd<> layer;           // expert-parallel: of this rank
  std::vector<double> losses;  // the mean square of the error, for each step
};

// The rows of some neighbouring parts of a batch.
struct part_rows {
  fmoe::tensor<float, 2> x, target;
};

inline part_rows draw_parts(const row_pairs& rows, std::size_t step, std::size_t first,
                            std::size_t count) {
  const std::size_t inputs = rows.x.shape()[1], outputs = rows.target.shape()[1];
  part_rows made{fmoe::tensor<float, 2>({count * tokens_of_part, inputs}),
                 fmoe::tensor<float, 2>({count * tokens_of_part, outputs})};
  float *x = made.x.data(), *target = made.target.data();
  for (std::size_t number = first; number < first + count; ++number) {
    auto random = drawn(7, step * parts_of_batch + number);
    for (std::size_t t = 0; t < tokens_of_part; ++t, x += inputs, target += outputs) {
      const std::size_t row = below(rows.x.shape()[0], random);
      copy_row(rows.x, row, x);
      copy_row(rows.target, row, target);
    }
  }
  return made;
}

// The numbers of the batch's errors, of which dy is a part.
constexpr std::size_t batch = parts_of_batch * tokens_of_part;
constexpr auto slope_of_loss = [](const auto& y, const auto& t) {
  return (2.0 / static_cast<double>(batch)) * (y - t);
};
inline double part_of_loss(const float* y, const float* target, std::size_t count) {
  double loss = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const double error = static_cast<double>(y[k]) - static_cast<double>(target[k]);
    loss += error * error / static_cast<double>(batch);
  }
  return loss;
}
// The loss of a batch, of which each rank knows its parts.
inline double loss_of_batch(fmoe::communicator& ranks, std::vector<double> parts) {
  ranks.all_reduce(std::span(parts));
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

// All ranks train the same layer.
inline trained train_over_ranks(fmoe::communicator& ranks, const row_pairs& rows,
                                std::size_t steps) {
  const std::size_t inputs = rows.x.shape()[1], outputs = rows.target.shape()[1],
                    parts = parts_of_batch / ranks.size();
  trained result{initial_layer(inputs, outputs), {}};
  auto step = fmoe::compile_gradients(result.layer, tokens_of_part, slope_of_loss, {.threads = 1});
  fmoe::gradient_sum<float> gradients(ranks);
  fmoe::adamw optimizer({.rate = 3e-3, .weight_decay = 0});
  fmoe::tensor<float, 2> y({tokens_of_part, outputs}), dx({tokens_of_part, inputs});
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<double> loss(parts_of_batch);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t number = ranks.rank() * parts + part;  // in the batch
      const auto [x, target] = draw_parts(rows, i, number, 1);
      step(x, target, y, dx);
      gradients.add(step.gradients());
      loss[number] = part_of_loss(y.data(), target.data(), y.size());
    }
    gradients.finish(step.gradients());
    optimizer(result.layer, step.gradients());
    step.refresh();
    result.losses.push_back(loss_of_batch(ranks, loss));
  }
  return result;
}

// Each rank trains its experts, and all train the same encoder and decoder.
inline trained train_experts_over_ranks(fmoe::communicator& ranks, const row_pairs& rows,
                                        std::size_t steps) {
  const std::size_t inputs = rows.x.shape()[1], outputs = rows.target.shape()[1],
                    parts = parts_of_batch / ranks.size(), tokens = parts * tokens_of_part;
  const auto layer = fmoe::shard(initial_layer(inputs, outputs), ranks, 'n');
  trained result{layer.own_part(), {}};
  auto step = fmoe::compile_gradients(layer, tokens, slope_of_loss, {.threads = 1});
  fmoe::adamw optimizer({.rate = 3e-3, .weight_decay = 0});
  fmoe::tensor<float, 2> y({tokens, outputs}), dx({tokens, inputs});
  for (std::size_t i = 0; i < steps; ++i) {
    const auto [x, target] = draw_parts(rows, i, ranks.rank() * parts, parts);
    step(x, target, y, dx);
    optimizer(result.layer, step.gradients());
    step.refresh();
    std::vector<double> loss(parts_of_batch);
    for (std::size_t part = 0; part < parts; ++part)
      loss[ranks.rank() * parts + part] =
          part_of_loss(y.data() + part * tokens_of_part * outputs,
                       target.data() + part * tokens_of_part * outputs, tokens_of_part * outputs);
    result.losses.push_back(loss_of_batch(ranks, loss));
  }
  return result;
}

// The greatest difference of two lists of losses, as a part of the loss.
inline double greatest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double greatest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    greatest = std::max(greatest, std::abs(a[i] - b[i]) / b[i]);
  return greatest;
}

// True if two layers have the same weights, bit by bit.
inline bool have_the_same_bits(fmoe::mxd<> a, fmoe::mxd<> b) {
  const auto left = fmoe::detail::released_parameters(a),
             right = fmoe::detail::released_parameters(b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto p = left[i].parameter.value(), q = right[i].parameter.value();
    if (p.empty()) continue;
    const std::size_t bytes = fmoe::detail::element_count(p.shape) * sizeof(float);
    if (std::memcmp(p.elements->data(), q.elements->data(), bytes) != 0) return false;
  }
  return true;
}

}  // namespace training
