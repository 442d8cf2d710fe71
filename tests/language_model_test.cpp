// SPDX-License-Identifier: MIT
// The gradients of the model of examples/train_language.cpp against differences of its loss.
#include <cmath>
#include <cstdint>
#include <vector>

#include "examples/language_layers.hpp"
#include "support/catch.hpp"

namespace {

using namespace fmoe;
using training::dense_layer;
using model = training::language_model<dense_layer>;

constexpr std::size_t kinds = 7, context = 4, width = 8, heads = 2, sequences = 3,
                      tokens = sequences * context;

std::vector<std::uint8_t> drawn(random_stream& random) {
  std::vector<std::uint8_t> all(tokens);
  for (std::uint8_t& c : all) c = static_cast<std::uint8_t>(random.bits() % kinds);
  return all;
}

// The mean of -log softmax(y) of the character that follows.
double loss_of(const tensor<float, 2>& y, const std::vector<std::uint8_t>& next) {
  double sum = 0;
  for (std::size_t t = 0; t < tokens; ++t) {
    double all = 0;
    for (std::size_t v = 0; v < kinds; ++v) all += std::exp(static_cast<double>(y(t, v)));
    sum += std::log(all) - static_cast<double>(y(t, next[t]));
  }
  return sum / tokens;
}

TEST_CASE("each gradient of a language model is a slope of its loss", "[language_model]") {
  random_stream random(5);
  auto m = model::initial(kinds, context, width, random,
                          [](random_stream& r) { return dense_layer::initial(width, 16, r); });
  training::compiled_model passes(m, sequences, heads);
  const auto here = drawn(random), next = drawn(random);
  passes.forward_and_backward(here, next);
  auto gradients = passes.gradients();

  const auto weights = detail::released_parameters(m),
             slopes = detail::released_parameters(gradients);
  REQUIRE(weights.size() == 2 + 2 * 9 + 3);
  for (std::size_t k = 0; k < weights.size(); ++k) {
    INFO(weights[k].name.name);
    const detail::any_tensor w = weights[k].parameter.value(), g = slopes[k].parameter.value();
    const auto* const slope = static_cast<const float*>(g.elements->data());
    const std::size_t count = detail::element_count(w.shape);
    // A direction of length about 1: half along the gradient, half random.
    double norm = 0, expected = 0;
    for (std::size_t i = 0; i < count; ++i)
      norm += static_cast<double>(slope[i]) * static_cast<double>(slope[i]);
    norm = std::sqrt(norm);
    REQUIRE(norm > 1e-3);
    std::vector<double> direction(count), before(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto s = static_cast<double>(slope[i]);
      direction[i] = s / norm + random.normal() / std::sqrt(static_cast<double>(count));
      expected += s * direction[i];
      before[i] = static_cast<double>(static_cast<const float*>(w.elements->data())[i]);
    }
    const auto moved = [&](double step) {
      auto* const to = static_cast<float*>(w.elements->written());
      for (std::size_t i = 0; i < count; ++i)
        to[i] = static_cast<float>(before[i] + step * direction[i]);
      passes.refresh();
      return loss_of(passes.forward(here), next);
    };
    constexpr double h = 5e-3;
    const double difference = (moved(h) - moved(-h)) / (2 * h);
    moved(0);
    CHECK(std::abs(difference - expected) < 0.01 * norm);
  }
}

}  // namespace
