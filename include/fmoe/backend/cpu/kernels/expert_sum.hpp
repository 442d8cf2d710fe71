// SPDX-License-Identifier: MIT
// Sums over the tokens that selected an expert: c[n, ...] is the sum of a[t, place of n, ...] b[t,
// place of n, ...]. The entries are sorted by expert, and the rows of each expert are brought
// together. Blocks of tokens at fixed places are summed in plain order and added in order, as in
// token_sum.hpp, by the kernels of gemm where they serve.
#pragma once

#include <array>

#include <fmoe/backend/cpu/kernels/gather.hpp>
#include <fmoe/backend/cpu/kernels/group_rows.hpp>
#include <fmoe/backend/cpu/kernels/token_sum.hpp>

namespace fmoe::cpu {

// Sums the rows of one expert, which lie together, block by block. Where the kernels of gemm do not
// serve, several blocks add to a part of the result while it is in L1. Rows of the first block
// replace what c holds if it is new.
template <class T, class Arch>
void sum_blocks(const expert_sum_step& s, std::span<const group_row> rows, bool is_new, const T* a,
                const T* b, T* c, T* scratch) noexcept {
  constexpr extent most = expert_sum_step::most_blocks, bytes_in_l1 = 24 << 10;
  std::array<extent, most + 1> ends{};  // of blocks with rows
  extent blocks = 0;
  for (extent r = 0; r < rows.size(); ++r) {
    if (r == 0 || rows[r].token / s.block != rows[r - 1].token / s.block) ++blocks;
    ends[blocks] = r + 1;
  }
  const auto replaces = [&](extent k) { return is_new && k == 0 && rows[0].token < s.block; };
  loop_axes out(s.out);
  if (s.product_room() != 0)
    if (const auto product = token_product::of(out, s.summed, s.block)) {
      // Where a product is written to c, several blocks are added to a tile of c at a time.
      const extent most_rows = product->is_direct() ? s.block : 0;
      for (extent k = 0, next = 1; k < blocks; k = next++) {
        while (next < blocks && ends[next + 1] - ends[k] <= most_rows) ++next;
        std::array<extent, most> counts{};
        for (extent i = k; i < next; ++i) counts[i - k] = ends[i + 1] - ends[i];
        sum_token_product<T, Arch>(*product, {a + ends[k] * s.a.size, s.a.size},
                                   {b + ends[k] * s.b.size, s.b.size}, c, ends[next] - ends[k],
                                   s.block, !replaces(k), scratch, counts.data());
      }
      return;
    }
  extent size = 1;
  for (const nest_axis& x : s.out) size *= x.length;
  const nest_axis cut = s.out.empty() ? nest_axis{1, 0, 0, 0} : s.out[0];
  extent unit = cut.length;
  if (blocks > 1) {
    const extent fits = bytes_in_l1 / sizeof(T) * cut.length / std::max<extent>(1, size);
    unit = std::clamp<extent>(fits / 4 * 4, 4, std::max<extent>(4, cut.length));
  }
  const auto product = [&](extent block, extent length) {
    if (!s.out.empty()) out[0].length = length;
    loop_axes summed;
    summed.push({ends[block + 1] - ends[block], s.a.size, s.b.size, 0});
    for (const nest_axis& x : s.summed) summed.push(x);
    return small_product<T, Arch>(out, summed);
  };
  for (extent from = 0; from < cut.length; from += unit) {
    const extent length = std::min(unit, cut.length - from);
    for (extent k = 0; k < blocks; ++k)
      product(k, length)(a + ends[k] * s.a.size + from * cut.a,
                         b == nullptr ? nullptr : b + ends[k] * s.b.size + from * cut.b,
                         c + from * cut.c, replaces(k) ? sum_into::nothing : sum_into::total);
  }
}

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
  T *const own_a = scratch + s.product_room(), *const own_b = own_a + s.together * s.a.size;
  auto* const lists = reinterpret_cast<std::uint32_t*>(own_b + s.together * s.b.size);
  extent size = 1;
  for (const nest_axis& x : s.out) size *= x.length;
  const auto clear = [&](extent n) {
    T* const sums = c + n * s.expert_stride;
    if (size == s.expert_stride) {  // neighbours in memory
      std::fill_n(sums, size, T(0));
      return;
    }
    static constexpr T zero = 0;
    loop_axes zeros;  // every place reads the same 0
    for (const nest_axis& x : s.out) zeros.push({x.length, 0, 0, x.c});
    small_product<T, Arch>(zeros, loop_axes())(&zero, nullptr, sums);
  };
  const auto bring = [&](const expert_sum_step::operand& x, token_rows<T> rows, extent first,
                         std::span<const group_row> list, T* to_rows) {
    const auto row = [&](const group_row& r) {
      return rows.data + (first + r.token) * rows.stride + (x.has_places ? r.place * x.size : 0);
    };
    for (extent r = 0; r < list.size(); ++r) {
      if (r + 1 < list.size()) fetch_row(row(list[r + 1]), x.size);
      to_rows = std::copy_n(row(list[r]), x.size, to_rows);
    }
  };
  for (extent first = 0; first == 0 || first < tokens; first += s.together) {
    const bool is_new = first == 0 && !adds;
    const group_list list = sort_by_expert(s.experts, std::min(s.together, tokens - first), lists,
                                           [&](extent t) { return kept(first + t); });
    if (is_new)
      for (extent n = from; n < to; ++n)
        if (list.count(n) == 0) clear(n);
    for (const std::uint32_t n : list.busy) {
      if (n < from || n >= to) continue;
      const std::span<const group_row> rows{list.rows + list.first(n), list.count(n)};
      if (is_new && rows[0].token >= s.block) clear(n);
      bring(s.a, a, first, rows, own_a);
      if (b.data != nullptr) bring(s.b, b, first, rows, own_b);
      sum_blocks<T, Arch>(s, rows, is_new, own_a, b.data == nullptr ? nullptr : own_b,
                          c + n * s.expert_stride, scratch);
    }
  }
}

}  // namespace fmoe::cpu
