// SPDX-License-Identifier: MIT
// Sums over the tokens that selected an expert: c[n, ...] is the sum of a[t, place of n, ...] b[t,
// place of n, ...]. The entries are sorted by expert, and the rows of each expert are brought
// together. Blocks of tokens at fixed places are summed in plain order and added in order, as in
// token_sum.hpp, by the kernels of gemm where they serve.
#pragma once

#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>

namespace fmoe::cpu {

// Returns how many parts pay off for this number of threads. Each makes the sums of some experts.
inline extent expert_sum_parts(const expert_sum_step& s, extent tokens, extent threads) noexcept {
  extent work = tokens * s.keep;
  for (const auto* axes : {&s.out, &s.summed})
    for (const nest_axis& x : *axes) work *= x.length;
  return parts_of_work(work, s.experts, threads);
}

// Makes part number `part` of `parts` of the result, or adds to it. `kept` gives the selection of
// each token.
template <class T, class Arch>
void expert_sum(const expert_sum_step& s, const auto& kept, token_rows<T> a, token_rows<T> b, T* c,
                T* scratch, extent tokens, extent part, extent parts, bool adds) noexcept {
  const extent from = s.experts * part / parts, to = s.experts * (part + 1) / parts;
  T *const own_a = scratch + token_product_room::size(s), *const own_b = own_a + s.block * s.a.size;
  auto* const lists = reinterpret_cast<std::uint32_t*>(own_b + s.block * s.b.size);
  const loop_axes out(s.out);
  const auto product = token_product::of(out, s.summed, s.block);
  extent size = 1;
  for (const nest_axis& x : s.out) size *= x.length;
  const auto clear = [&](extent n) {
    T* const to = c + n * s.expert_stride;
    if (size == s.expert_stride) {  // neighbours in memory
      std::fill_n(to, size, T(0));
      return;
    }
    static constexpr T zero = 0;
    loop_axes zeros;  // every place reads the same 0
    for (const nest_axis& x : s.out) zeros.push({x.length, 0, 0, x.c});
    small_product<T, Arch>(zeros, loop_axes())(&zero, nullptr, to);
  };
  const auto bring = [&](const expert_sum_step::operand& x, token_rows<T> rows, extent first,
                         std::span<const group_row> list, T* to_rows) {
    for (const group_row& r : list)
      to_rows = std::copy_n(
          rows.data + (first + r.token) * rows.stride + (x.has_places ? r.place * x.size : 0),
          x.size, to_rows);
  };
  for (extent first = 0; first == 0 || first < tokens; first += s.block) {
    const group_list list = sort_by_expert(s.experts, std::min(s.block, tokens - first), lists,
                                           [&](extent t) { return kept(first + t); });
    if (first == 0 && !adds)
      for (extent n = from; n < to; ++n)
        if (list.count(n) == 0) clear(n);
    for (const std::uint32_t n : list.busy) {
      if (n < from || n >= to) continue;
      const std::span<const group_row> rows{list.rows + list.first(n), list.count(n)};
      bring(s.a, a, first, rows, own_a);
      if (b.data != nullptr) bring(s.b, b, first, rows, own_b);
      T* const to_expert = c + n * s.expert_stride;
      const bool adds_here = adds || first > 0;
      if (product) {
        sum_token_product<T, Arch>(*product, {own_a, s.a.size}, {own_b, s.b.size}, to_expert,
                                   rows.size(), s.block, adds_here, scratch);
        continue;
      }
      loop_axes summed;
      summed.push({rows.size(), s.a.size, s.b.size, 0});
      for (const nest_axis& x : s.summed) summed.push(x);
      small_product<T, Arch>(out, summed)(own_a, b.data == nullptr ? nullptr : own_b, to_expert,
                                          adds_here ? sum_into::total : sum_into::nothing);
    }
  }
}

}  // namespace fmoe::cpu
