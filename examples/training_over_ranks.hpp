// SPDX-License-Identifier: MIT
// Data-parallel training of an MxD: each rank computes the gradients of its parts of a batch, all
// get their sum, and each takes the same step. Ranks are threads in train_over_ranks.cpp, and
// processes of an MPI job in tests/mpi/train.cpp.
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
  fmoe::mxd<> layer;
  std::vector<double> losses;  // the mean square of the error, for each step
};

// All ranks train the same layer.
inline trained train_over_ranks(fmoe::communicator& ranks, const row_pairs& rows,
                                std::size_t steps) {
  const std::size_t inputs = rows.x.shape()[1], outputs = rows.target.shape()[1],
                    parts = parts_of_batch / ranks.size(), batch = parts_of_batch * tokens_of_part;
  trained result{initial_layer(inputs, outputs), {}};
  const auto slope = [&](const auto& y, const auto& t) {
    return (2.0 / static_cast<double>(batch)) * (y - t);
  };
  auto step = fmoe::compile_gradients(result.layer, tokens_of_part, slope, {.threads = 1});
  fmoe::gradient_sum<float> gradients(ranks);
  fmoe::adamw optimizer({.rate = 3e-3, .weight_decay = 0});
  fmoe::tensor<float, 2> x({tokens_of_part, inputs}), target({tokens_of_part, outputs}),
      y(target.shape()), dx(x.shape());
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<double> loss(parts_of_batch);
    for (std::size_t part = 0; part < parts; ++part) {
      const std::size_t number = ranks.rank() * parts + part;  // in the batch
      auto random = drawn(7, i * parts_of_batch + number);
      for (std::size_t t = 0; t < tokens_of_part; ++t) {
        const std::size_t row = below(rows.x.shape()[0], random);
        copy_row(rows.x, row, x.data() + t * inputs);
        copy_row(rows.target, row, target.data() + t * outputs);
      }
      step(x, target, y, dx);
      gradients.add(step.gradients());
      for (std::size_t k = 0; k < y.size(); ++k) {
        const double error =
            static_cast<double>(y.data()[k]) - static_cast<double>(target.data()[k]);
        loss[number] += error * error / static_cast<double>(batch);
      }
    }
    gradients.finish(step.gradients());
    optimizer(result.layer, step.gradients());
    step.refresh();
    ranks.all_reduce(std::span(loss));
    result.losses.push_back((loss[0] + loss[1]) + (loss[2] + loss[3]));
  }
  return result;
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
