// SPDX-License-Identifier: MIT
// Expert choice (Zhou et al. 2022): each expert takes the tokens that it ranks highest.
#pragma once

#include <algorithm>

#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

template <class T>
struct score_rows {
  const T* data;
  extent stride;
};

// Writes the selections of all tokens, `stride` elements apart, each with room for every expert.
// `order` has room for every token.
template <class T, class Arch>
void expert_choice(const selection_rule& rule, score_rows<T> scores, score_rows<T> ranked,
                   extent tokens, extent experts, std::uint32_t* order, T* selections,
                   extent stride) noexcept {
  const auto state = [&](extent t) {
    return top_k_state<T, Arch>(selections + t * stride, experts);
  };
  for (extent t = 0; t < tokens; ++t) state(t).count = 0;
  const extent capacity = capacity_of(rule, tokens, experts);
  for (extent e = 0; e < experts; ++e) {
    std::iota(order, order + tokens, std::uint32_t{0});
    const by_rank<T, Arch> before{ranked.data + e, ranked.stride};
    if (capacity < tokens) std::nth_element(order, order + capacity, order + tokens, before);
    for (extent i = 0; i < capacity; ++i) {
      const auto s = state(order[i]);
      s.values[s.count] = scores.data[order[i] * scores.stride + e];
      s.indices[s.count++] = static_cast<std::uint32_t>(e);
    }
  }
  for (extent t = 0; t < tokens; ++t)
    weigh<T, Arch>(state(t), rule.weights, scores.data + t * scores.stride, experts,
                   rule.keeps_zeros);
}

}  // namespace fmoe::cpu
