// SPDX-License-Identifier: MIT
// Runs the layer of levels.hpp; the file of each level includes this header and names its function.
#pragma once

#include <fmoe/mxd.hpp>

#include "../support/oracle.hpp"
#include "levels.hpp"

// It is a template on the architecture, as everything that reaches a kernel must be.
template <class Arch = fmoe::cpu::native>
level_result run_layer() {
  using namespace fmoe;
  mxd<float> m;
  m.encoder = test::random<parameter<float, 2>>({61, 70}, 1);
  m.gate = test::random<parameter<float, 2>>({61, 90}, 2);
  m.scales = test::random<parameter<float, 2>>({90, 50}, 3);
  m.decoder = test::random<parameter<float, 2>>({70, 50}, 4);
  m.active = 8;
  const auto x = test::random<tensor<float, 2>>({30, 61}, 5);
  std::vector<float> all_bits;
  const auto add = [&](const tensor<float, 2>& y) {
    all_bits.insert(all_bits.end(), y.data(), y.data() + y.size());
  };
  add(evaluate<Arch>(m(x)));
  // Each level has kernels of its own for each type of weights.
  const auto with = [&](const auto& w) { add(evaluate<Arch>(einsum<"ti,ih->th">(x, w))); };
  parameter<bf16, 2> brief(m.encoder.shape());
  parameter<f16, 2> half(m.encoder.shape());
  const auto rounded = [&]<class T>(parameter<T, 2>& to) {
    std::transform(m.encoder.begin(), m.encoder.end(), to.begin(), [](float v) { return T(v); });
  };
  rounded(brief);
  rounded(half);
  with(brief);
  with(half);
  with(quantized<q8>(m.encoder, 0));
  with(quantized<q8c>(m.encoder, 0));
  return {Arch::name, std::move(all_bits)};
}
