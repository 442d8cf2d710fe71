// SPDX-License-Identifier: MIT
// Launches a selection: the kernel that suits the length of its rows.
#pragma once

#include <fmoe/backend/cuda/kernels/gather_columns.hpp>
#include <fmoe/backend/cuda/kernels/register_selector.hpp>
#include <fmoe/backend/cuda/product_steps.hpp>

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

// A table of rows, as it is stored.
struct stored_table {
  const void* data;
  dtype stored;
};

// The sum of selected rows of a table; `k` has no table yet.
template <class T, class Queue>
void gather(Queue& queue, const gather_columns<T, T, 1>& k, const stored_table& table,
            extent tokens) {
  with_table_type<T>(table.stored, [&]<class S>(S*) {
    const S* const data = static_cast<const S*>(table.data);
    const auto launch = [&]<unsigned Own>(std::integral_constant<unsigned, Own>) {
      const gather_columns<T, S, Own> kernel{k.from,    data,        k.c,     k.rows,
                                             k.columns, k.table_row, k.finish};
      queue.each("gather", kernel, tokens * (k.columns / Own));
    };
    constexpr unsigned own = numbers_each<T>;
    constexpr extent many = 256 * multiprocessors;  // threads
    const bool is_whole =
        k.columns % own == 0 && k.table_row % own == 0 && is_aligned(data, k.columns / own * 16);
    if (is_whole && tokens * k.columns >= many * own)
      launch(std::integral_constant<unsigned, own>{});
    else launch(std::integral_constant<unsigned, 1>{});
  });
}

// The products of rows with selected rows of a table; `k` has no table yet.
template <class T, class Queue>
void sample(Queue& queue, const sample_kernel<T>& k, const stored_table& table) {
  with_table_type<T>(table.stored, [&]<class S>(S*) {
    const S* const data = static_cast<const S*>(table.data);
    const bool is_aligned_x = is_aligned(k.x.data, k.x.stride);
    const bool is_whole = k.depth % 4 == 0 && k.table_row % 4 == 0 && is_aligned(data);
    const sample_kernel<T, S> kernel{
        k.from,  k.to, k.x, data, k.tokens, k.rows, k.depth, k.table_row, is_aligned_x && is_whole,
        k.finish};
    queue.launch("sample", kernel, warps::blocks(k.tokens * k.rows * k.from.keep));
  });
}

}  // namespace fmoe::cuda
