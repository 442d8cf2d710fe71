// SPDX-License-Identifier: MIT
// Runs a layer and names what windows.h would make macros of; each translation unit includes this
// header behind windows.h and every header of fmoe, and has functions of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>

namespace {

template <std::size_t Rank>
fmoe::parameter<float, Rank> weights(const std::array<std::size_t, Rank>& shape) {
  fmoe::parameter<float, Rank> p(shape);
  for (std::size_t i = 0; i < p.size(); ++i) p.data()[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  return p;
}

// Returns true if all is as without windows.h.
bool runs() {
  fmoe::mxd<> layer;
  layer.encoder = weights<2>({4, 5});
  layer.gate = weights<2>({4, 6});
  layer.scales = weights<2>({6, 3});
  layer.decoder = weights<2>({5, 3});
  layer.active = 2;
  const fmoe::tensor<float, 2> x = weights<2>({2, 4});
  const auto y = evaluate(layer(x));
  fmoe::tensor<float, 2> compiled(y.shape());
  compile(layer, 2)(x, compiled);
  const auto numbers = [](const auto& t) { return std::span(t.data(), t.size()); };
  // Functions of fmoe and of std, whose names windows.h has for macros.
  const auto clipped = evaluate(max(min(y, 0.25f), 0.f));
  const float greatest = std::max(0.f, std::min(0.25f, std::numeric_limits<float>::max()));
  return std::ranges::equal(numbers(y), numbers(compiled)) &&
         std::ranges::max(numbers(clipped)) <= greatest && GetCurrentProcessId() != 0;
}

}  // namespace
