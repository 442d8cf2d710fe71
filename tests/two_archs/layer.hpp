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
  const auto y = evaluate<Arch>(m(x));
  return {Arch::name, {y.data(), y.data() + y.size()}};
}
