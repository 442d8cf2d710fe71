// SPDX-License-Identifier: MIT
// Selects the best sums of two lists: it takes the `each` greatest entries of both lists, in the
// order of their indices, then the `keep` greatest of their sums. The sums are scanned in ascending
// order of i s + j, some hundreds at a time, so they never exist all at once.
#pragma once

#include <fmoe/backend/cpu/kernels/top_k.hpp>

namespace fmoe::cpu {

// out[i] = a + x[i].
template <class T, class Arch>
void add_number(T a, const T* x, extent n, T* out) noexcept {
  for (extent i = 0; i < n; i += lanes<T, Arch>) {
    const extent part = std::min(lanes<T, Arch>, n - i);
    store_part<T, Arch>(out + i, part, vec<T, Arch>(a) + load_part<T, Arch>(x + i, part));
  }
}

// `scores` are two rows of n. The states of the result and of the two lists have room for what the
// rule keeps, or for more.
template <class T, class Arch>
void product_top_k(const top_k_state<T, Arch>& s, const selection_rule& rule, const T* scores,
                   extent n, const top_k_state<T, Arch>& a,
                   const top_k_state<T, Arch>& b) noexcept {
  constexpr extent most = 16 * top_k_state<T, Arch>::block;
  const auto best = [&](const top_k_state<T, Arch>& kept, const T* row) {
    top_k_scan<T, Arch>(kept, rule.each, row, n, 0, true, true);
    if (kept.count > rule.each) top_k_cut(kept, rule.each);
  };
  s.count = 0;
  if (rule.keep == 0) return;
  best(a, scores);
  best(b, scores + n);
  const extent all = extent{a.count} * b.count;
  for (extent at = 0; at < all; at += most) {
    T sums[most];
    const extent here = std::min(most, all - at);
    for (extent k = 0; k < here;) {
      const extent i = (at + k) / b.count, j = (at + k) % b.count;
      const extent part = std::min(b.count - j, here - k);
      add_number<T, Arch>(a.values[i], b.values + j, part, sums + k);
      k += part;
    }
    top_k_scan<T, Arch>(s, rule.keep, sums, here, at, at == 0, zeros_count(rule));
  }
  if (s.count > rule.keep) top_k_cut(s, rule.keep);
  for (extent k = 0; k < s.count; ++k)
    s.indices[k] = static_cast<std::uint32_t>(a.indices[s.indices[k] / b.count] * n +
                                              b.indices[s.indices[k] % b.count]);
  weigh<T, Arch>(s, rule.weights, nullptr, 0, rule.keeps_zeros);
}

}  // namespace fmoe::cpu
