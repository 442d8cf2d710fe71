// SPDX-License-Identifier: MIT
// A small layer of each kind, as functions of one type.
#pragma once

#include <functional>

#include <fmoe/aoe.hpp>
#include <fmoe/moe.hpp>
#include <fmoe/monet.hpp>
#include <fmoe/mumoe.hpp>
#include <fmoe/mxd.hpp>
#include <fmoe/peer.hpp>

#include "oracle.hpp"

namespace fmoe::test {

constexpr extent width = 12;

using any = expr<float, 2>;
using small_layer =
    std::function<any(const any&)>;  // one type for all, so that this file compiles in seconds

template <std::size_t Rank>
void fill(parameter<float, Rank>& p, const std::array<extent, Rank>& shape, unsigned seed) {
  p = random<parameter<float, Rank>>(shape, seed, 0.4f);
}

template <class Layer>
inline small_layer layer(Layer l) {
  return [l](const any& x) { return l(x); };
}

template <class Experts>
mumoe<Experts> gated(Experts experts) {
  mumoe<Experts> l;
  fill(l.gate.projections[0], {width, 9}, 1);
  l.experts = std::move(experts);
  return l;
}

inline small_layer cp() {
  cp_experts<1> e;
  fill(e.experts[0], {9, 20}, 2);
  fill(e.input, {width + 1, 20}, 3);
  fill(e.output, {width, 20}, 4);
  return layer(gated(e));
}

inline small_layer tr_block() {
  mumoe_block<tr_experts<1>> l;
  fill(l.gate.projections[0], {width, 9}, 1);
  for (auto* e : {&l.first, &l.second}) {
    fill(e->experts[0], {3, 9, 4}, 2);
    fill(e->input, {4, width + 1, 20}, 3);
    fill(e->output, {20, width, 3}, 4);
  }
  return layer(l);
}

inline small_layer dense() {
  dense_experts<1> e;
  fill(e.weight, {9, width, width}, 2);
  return layer(gated(e));
}

inline small_layer mixture(routing::by how) {
  aoe<float> l;
  fill(l.down, {width, 30, 4}, 1);
  fill(l.up, {30, 4, 17}, 2);
  fill(l.linear, {30, width, 17}, 3);
  fill(l.output, {30, 17, width}, 4);
  l.route.how = how;
  return layer(l);
}

inline small_layer sparse() {
  moe<float> l;
  fill(l.router, {width, 10}, 1);
  fill(l.activated, {10, width, 17}, 2);
  fill(l.linear, {10, width, 17}, 3);
  fill(l.output, {10, 17, width}, 4);
  return layer(l);
}

inline small_layer retrieval() {
  peer<float> l;
  fill(l.queries, {width, 2 * 2 * 4}, 1);
  fill(l.keys, {2, 20, 2, 4}, 2);
  fill(l.down, {400, width}, 3);
  fill(l.up, {400, width}, 4);
  l.active = 3;
  return layer(l);
}

inline small_layer monet(bool vertical, bool edited) {
  constexpr extent s = 8, m = 6, half = width / 2;
  monet_router<float> r;
  fill(r.keys1, {width, 2 * s}, 1);
  fill(r.keys2, {width, 2 * s}, 2);
  r.heads = 2;
  r.active = 3;
  std::vector<index_pair> deleted;
  if (edited) deleted = {{1, 2}, {5, 5}};
  if (!vertical) {
    monet_hd<float> l;
    fill(l.encoder, {width, s * m}, 3);
    fill(l.decoder, {s * m, width}, 4);
    fill(l.bias, {s, width}, 5);
    l.deleted = deleted;
    return [=](const any& x) { return l(x, r.g1(x), r.g2(x)); };
  }
  monet_vd<float> l;
  fill(l.encoder1, {width, s * half}, 3);
  fill(l.encoder2, {width, s * half}, 4);
  for (auto* d : {&l.decoder11, &l.decoder12, &l.decoder21, &l.decoder22})
    fill(*d, {s * half, half}, 5);
  fill(l.bias1, {s, half}, 6);
  fill(l.bias2, {s, half}, 7);
  l.deleted = deleted;
  return [=](const any& x) { return l(x, r.g1(x), r.g2(x)); };
}

inline const std::pair<const char*, small_layer> small_layers[] = {
    {"CP", cp()},
    {"TR block", tr_block()},
    {"dense", dense()},
    {"AoE, top-K", mixture(routing::by::top_k)},
    {"AoE, top-P", mixture(routing::by::top_p)},
    {"sparse mixture", sparse()},
    {"PEER", retrieval()},
    {"Monet HD", monet(false, false)},
    {"Monet HD, edited", monet(false, true)},
    {"Monet VD", monet(true, false)},
    {"Monet VD, edited", monet(true, true)},
};

}  // namespace fmoe::test
