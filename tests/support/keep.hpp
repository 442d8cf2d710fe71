// SPDX-License-Identifier: MIT
// Layers that select, and the check that they keep fewer entries than they are compiled for.
#pragma once

#include <fmoe/aoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>

#include "autonomous.hpp"
#include "catch.hpp"
#include "same_bits.hpp"

namespace fmoe::test {

inline constexpr extent inputs = 64, tokens = 37, most = 16;
inline const auto kept_x = random<tensor<float, 2>>({tokens, inputs}, 8);

inline mxd<> decoders_of(extent experts, extent active) {
  mxd<> l;
  l.encoder = random<parameter<float, 2>>({inputs, 40}, 1, 0.3f);
  l.gate = random<parameter<float, 2>>({inputs, experts}, 3, 0.3f);
  l.scales = random<parameter<float, 2>>({experts, 20}, 5, 0.3f);
  l.decoder = random<parameter<float, 2>>({40, 20}, 6, 0.3f);
  l.active = active;
  return l;
}

inline peer<> retrieved_of(extent keys, extent active) {
  peer<> l;
  l.queries = random<parameter<float, 2>>({inputs, 24}, 1, 0.3f);
  l.keys = random<parameter<float, 4>>({2, keys, 2, 6}, 2);
  l.down = random<parameter<float, 2>>({keys * keys, inputs}, 3, 0.3f);
  l.up = random<parameter<float, 2>>({keys * keys, inputs}, 4, 0.3f);
  l.active = active;
  return l;
}

// Enough experts for a screen, and for numbers of the selected ones alone.
inline mxd<> decoders(extent active) { return decoders_of(4096, active); }
inline peer<> retrieved(extent active) { return retrieved_of(60, active); }

inline aoe<float> autonomous_of(extent active) {
  aoe<float> l = autonomous<float>(inputs);
  l.route.how = routing::by::top_k;
  l.route.active = active;
  return l;
}

// Compares a layer for `most` entries with layers that are compiled for fewer.
template <class Make>
void check(const Make& make, extent room, std::initializer_list<extent> counts,
           const compile_options& options = {}) {
  auto forward = compile(make(room), tokens, options);
  const auto whole = forward(kept_x);
  for (const extent k : counts) {
    INFO(k << " of " << room);
    forward.keep(k);
    CHECK(same_bits(forward(kept_x), compile(make(k), tokens, options)(kept_x)));
  }
  forward.keep(all);
  CHECK(same_bits(forward(kept_x), whole));
}

}  // namespace fmoe::test
