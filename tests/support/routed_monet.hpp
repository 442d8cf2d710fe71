// SPDX-License-Identifier: MIT
// Small layers of Monet with their router, whose experts can be cut over ranks.
#pragma once

#include <fmoe/monet.hpp>

#include "shard_checks.hpp"

namespace fmoe::test {

// Monet's experts and their router, as one layer. The router's labels are its own.
template <class T, class Experts>
struct routed {
  monet_router<T> router;
  Experts experts;

  auto operator()(const operand_of<2> auto& x) const {
    return experts(x, router.g1(x), router.g2(x));
  }
  static void released(auto& layer, auto&& visit) {
    auto part = detail::released_within("", visit, "d");
    layer.router.released(layer.router, part);
    layer.experts.released(layer.experts, visit);
  }
};

// 9 halves of 4 units.
template <class T = float>
monet_router<T> small_router(bool has_statistics) {
  monet_router<T> router;
  fill_with(router.keys1, {12, 2 * 9}, 1, 1000);
  fill_with(router.keys2, {12, 2 * 9}, 2, 1000);
  router.heads = 2;
  router.active = 3;
  if (!has_statistics) return router;
  for (auto* p : {&router.mean1, &router.mean2, &router.variance1, &router.variance2})
    *p = tensor<T, 1>({2}, std::vector<T>{0.25f, 0.5f});
  return router;
}
template <class T = float>
monet_hd<T> small_hd() {
  monet_hd<T> l;
  fill_with(l.encoder, {12, 9 * 4}, 3, 1000);
  fill_with(l.encoder_bias, {9 * 4}, 4, 1000);
  fill_with(l.decoder, {9 * 4, 12}, 5, 1000);
  fill_with(l.bias, {9, 12}, 6, 1000);
  return l;
}
template <class T = float>
monet_vd<T> small_vd() {
  monet_vd<T> l;
  fill_with(l.encoder1, {12, 9 * 2}, 3, 1000);
  fill_with(l.encoder2, {12, 9 * 2}, 4, 1000);
  fill_with(l.encoder_bias1, {9 * 2}, 5, 1000);
  fill_with(l.encoder_bias2, {9 * 2}, 6, 1000);
  fill_with(l.decoder11, {9 * 2, 6}, 7, 1000);
  fill_with(l.decoder12, {9 * 2, 6}, 8, 1000);
  fill_with(l.decoder21, {9 * 2, 6}, 9, 1000);
  fill_with(l.decoder22, {9 * 2, 6}, 10, 1000);
  fill_with(l.bias1, {9, 6}, 11, 1000);
  fill_with(l.bias2, {9, 6}, 12, 1000);
  return l;
}

}  // namespace fmoe::test
