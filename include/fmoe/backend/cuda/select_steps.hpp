// SPDX-License-Identifier: MIT
// Launches a selection: the kernel that suits the length of its rows.
#pragma once

#include <fmoe/backend/cuda/kernels/register_selector.hpp>

namespace fmoe::cuda {

// Calls f with the way to select from rows of so many numbers.
template <class T, class F>
void with_selector(extent columns, extent keep, const F& f) {
  using small = in_registers<4, 256>;
  using medium = in_registers<sizeof(T) == 4 ? 16 : 8, 512>;
  using large = in_registers<22, 1024>;
  if (keep > small::most_kept) return f(by_digits{});
  if (columns <= small::most) return f(small{});
  if (columns <= medium::most) return f(medium{});
  if constexpr (sizeof(T) == 4)
    if (columns <= large::most) return f(large{});
  f(by_digits{});
}

template <class T, class Queue>
void select_rows(Queue& queue, const select_kernel<T>& k, extent tokens) {
  const char* const step = k.takes_all ? "nonzero" : "top_k";
  const extent blocks = tokens * k.rows;
  if (k.takes_all) return queue.launch(step, k, blocks);
  const auto by_warps = [&]<unsigned Items>(std::integral_constant<unsigned, Items>) {
    queue.launch(step,
                 warp_select_kernel<T, Items>{k.a, k.to, tokens, k.rows, k.columns, k.takes_zeros},
                 warps::blocks(blocks));
  };
  constexpr extent one_each = 32, four_each = 128;
  if (k.columns <= one_each) return by_warps(std::integral_constant<unsigned, 1>{});
  if (k.columns <= four_each) return by_warps(std::integral_constant<unsigned, 4>{});
  with_selector<T>(k.columns, k.to.keep, [&]<class How>(How) {
    queue.launch(step, select_kernel<T, How>{k.a, k.to, k.rows, k.columns, false, k.takes_zeros},
                 blocks);
  });
}

// The greatest sums of two lists.
template <class T, class Queue>
void select_sums(Queue& queue, const product_select_kernel<T>& k, extent tokens) {
  const extent longest = std::max(k.list, k.each * k.each);
  const auto launch = [&]<class How>(How) {
    queue.launch("product_top_k",
                 product_select_kernel<T, How>{k.a, k.to, k.rows, k.list, k.each, k.takes_zeros},
                 tokens * k.rows);
  };
  using small = in_registers<4, 256>;
  if (longest <= small::most && k.to.keep <= small::most_kept) launch(small{});
  else launch(by_digits{});
}

}  // namespace fmoe::cuda
