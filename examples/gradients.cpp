// SPDX-License-Identifier: MIT
// This is the first program of docs/gradients.md. A small muMoE learns a function of two numbers by
// stochastic gradient descent.
#include <cmath>
#include <cstdio>

#include <fmoe/gradients.hpp>
#include <fmoe/layers/initialise.hpp>
#include <fmoe/losses.hpp>
#include <fmoe/mumoe.hpp>

using fmoe::tensor;

int main() {
  constexpr std::size_t tokens = 256;
  fmoe::random_stream random(1);
  tensor<float, 2> x({tokens, 2}), target({tokens, 1}), y({tokens, 1}), dx({tokens, 2});
  for (float& v : x) v = static_cast<float>(random.uniform());
  for (std::size_t t = 0; t < tokens; ++t) target(t, 0) = std::sin(3 * x(t, 0)) * x(t, 1);

  fmoe::cp_mumoe<1> layer;  // 8 experts of rank 8, which take [x, 1]
  const auto drawn = [&](std::size_t rows, std::size_t columns) {
    tensor<float, 2> w({rows, columns});
    for (float& v : w) v = static_cast<float>(random.uniform());
    return w;
  };
  layer.gate.projections = {drawn(2, 8)};
  layer.gate.layer_norm = false;
  layer.experts.experts = {drawn(8, 8)};
  layer.experts.input = drawn(3, 8);
  layer.experts.output = drawn(1, 8);

  auto step = fmoe::compile_gradients(layer, tokens, [](const auto& made, const auto& wanted) {
    return fmoe::losses::mse(made, wanted);
  });
  const auto descend = [](auto& weights, const auto& gradient) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights.data()[i] -= 0.75f * gradient.data()[i];
  };
  for (int i = 0; i <= 400; ++i) {
    step(x, target, y, dx);
    if (i % 100 == 0) std::printf("%4d steps: mean square of the error %.5f\n", i, step.loss());
    const auto& d = step.gradients();
    descend(layer.gate.projections[0], d.gate.projections[0]);
    descend(layer.experts.experts[0], d.experts.experts[0]);
    descend(layer.experts.input, d.experts.input);
    descend(layer.experts.output, d.experts.output);
    step.refresh();
  }
}
