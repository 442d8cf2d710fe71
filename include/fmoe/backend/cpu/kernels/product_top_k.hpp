// SPDX-License-Identifier: MIT
// Selects the best sums of two lists: it takes the `each` greatest entries of both lists, in the
// order of their indices, then the `keep` greatest of their sums. The sums are scanned in ascending
// order of i s + j, so they never exist all at once.
#pragma once

#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

// `scores` are two rows of n. `first` and `second` are states of `each` entries, and `state` is one
// of `keep`.
template <class T, class Arch>
void product_top_k(T* state, const selection_rule& rule, const T* scores, extent n, T* first,
                   T* second) noexcept {
  constexpr extent block = top_k_state<T, Arch>::block;
  const top_k_state<T, Arch> a(first, rule.each), b(second, rule.each), s(state, rule.keep);
  const auto best = [&](T* list, const T* row) {
    top_k_scan<T, Arch>(list, rule.each, row, n, 0, true, true);
    const top_k_state<T, Arch> kept(list, rule.each);
    if (kept.count > rule.each) top_k_cut(kept, rule.each);
  };
  s.count = 0;
  if (rule.keep == 0) return;
  best(first, scores);
  best(second, scores + n);
  bool is_first = true;
  for (extent i = 0; i < a.count; ++i)
    for (extent j = 0; j < b.count; j += block) {
      T sums[block];
      const extent part = std::min(block, b.count - j);
      for (extent k = 0; k < part; ++k) sums[k] = a.values[i] + b.values[j + k];
      top_k_scan<T, Arch>(state, rule.keep, sums, part, i * b.count + j, is_first,
                          zeros_count(rule.weights));
      is_first = false;
    }
  if (s.count > rule.keep) top_k_cut(s, rule.keep);
  for (extent k = 0; k < s.count; ++k)
    s.indices[k] = static_cast<std::uint32_t>(a.indices[s.indices[k] / b.count] * n +
                                              b.indices[s.indices[k] % b.count]);
  weigh<T, Arch>(s, rule.weights, nullptr, 0);
}

}  // namespace fmoe::cpu
