// SPDX-License-Identifier: MIT
// Launches a selection: the kernel that suits the length of its rows.
#pragma once

#include <fmoe/backend/cuda/kernels/gather_columns.hpp>
#include <fmoe/backend/cuda/kernels/screen.hpp>
#include <fmoe/backend/cuda/kernels/split_selection.hpp>
#include <fmoe/backend/cuda/product_steps.hpp>

namespace fmoe::cuda {

using in_few_registers = in_registers<4, 256>;
template <class T>
using in_some_registers = in_registers<sizeof(T) == 4 ? 16 : 8, 512>;
template <class T>
using in_most_registers =
    std::conditional_t<sizeof(T) == 4, in_registers<22, 1024>, in_some_registers<T>>;

// Calls f with the way to select from rows of so many numbers.
template <class T, class F>
void with_selector(extent columns, extent keep, const F& f) {
  if (keep > in_few_registers::most_kept) return f(by_digits{});
  if (columns <= in_few_registers::most) return f(in_few_registers{});
  if (columns <= in_some_registers<T>::most) return f(in_some_registers<T>{});
  if (columns <= in_most_registers<T>::most) return f(in_most_registers<T>{});
  f(by_digits{});
}

// The parts of a row that are selected from by themselves: one if it fits the registers of a block.
template <class T>
row_parts parts_of_row(extent columns, extent keep) {
  if (columns <= in_most_registers<T>::most || keep == 0 || keep > in_few_registers::most_kept)
    return {columns, std::max<extent>(1, columns), keep};
  const row_parts small{columns, in_few_registers::most, keep};
  if (small.candidates() <= in_some_registers<T>::most) return small;
  return {columns, in_some_registers<T>::most, keep};
}

// Returns the elements for candidates that a selection from so many rows makes use of.
template <class T>
extent room_for_candidates(extent rows, extent columns, extent keep) {
  constexpr extent most_rows = 256;
  const row_parts parts = parts_of_row<T>(columns, keep);
  if (parts.count() <= 1) return 0;
  return candidate_rows<T>::size(std::min(rows, most_rows), parts.candidates());
}

// Selects from rows in parts, from as many tokens at a time as there is room for.
template <class T, class Queue>
void select_in_parts(Queue& queue, const select_kernel<T>& k, extent tokens, const row_parts& parts,
                     T* memory, extent most_tokens) {
  for (extent first = 0; first < tokens; first += most_tokens) {
    const extent rows = std::min(most_tokens, tokens - first) * k.rows;
    const auto all = candidate_rows<T>::in(memory, rows, parts.candidates());
    rows_at<const T> a = k.a;
    a.data = a.row(first);
    selections_at<T> to = k.to;
    to.of.data = to.of.row(first);
    const auto find = [&]<class How>(How) {
      const select_part_kernel<T, How> kernel{a, all, k.rows, parts};
      queue.launch("top_k", kernel, rows * parts.count());
    };
    if (parts.each <= in_few_registers::most) find(in_few_registers{});
    else find(in_some_registers<T>{});
    with_selector<T>(parts.candidates(), parts.keep, [&]<class How>(How) {
      const select_candidates_kernel<T, How> kernel{all, to, k.rows, parts.candidates(),
                                                    k.takes_zeros};
      queue.launch("top_k", kernel, rows);
    });
  }
}

// `memory` has room for so many elements.
template <class T, class Queue>
void select_rows(Queue& queue, const select_kernel<T>& k, extent tokens, T* memory, extent room) {
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
  const row_parts parts = parts_of_row<T>(k.columns, k.to.keep);
  if (parts.count() > 1)
    if (const extent most = room / candidate_rows<T>::size(k.rows, parts.candidates()); most != 0)
      return select_in_parts(queue, k, tokens, parts, memory, most);
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
  using small = in_few_registers;
  if (longest <= small::most && k.to.keep <= small::most_kept) launch(small{});
  else launch(by_digits{});
}

// Calls f with the number of columns that a thread makes: those of an access if there are enough of
// them for all threads of a GPU.
template <class T, class F>
void with_columns(bool has_whole_rows, extent numbers, const F& f) {
  constexpr unsigned own = numbers_each<T>;
  constexpr extent many = 256 * multiprocessors;  // threads
  if (has_whole_rows && numbers >= many * own) f(std::integral_constant<unsigned, own>{});
  else f(std::integral_constant<unsigned, 1>{});
}

// A table of rows, as it is stored.
struct stored_table {
  const void* data;
  dtype stored;
  const float* scales = nullptr;  // of 8 bits
  extent scale_block = 1;
};

// Calls f with the parts of rows whose scores tensor cores have made, and with how a block finds
// the greatest bounds of one. Few rows have small parts, so that there are blocks for all SMs.
template <class F>
void with_screen_parts(extent columns, extent keep, extent rows, const F& f) {
  using few = in_few_registers;
  using some = in_registers<16, 256>;
  constexpr extent few_blocks = 4 * multiprocessors;
  static_assert(few::most == screen_room::least_part);
  if (keep > few::most_kept) f(row_parts{columns, columns, keep}, by_digits{});
  else if (rows * divide_up(columns, few::most) <= few_blocks)
    f(row_parts{columns, few::most, keep}, few{});
  else f(row_parts{columns, some::most, keep}, some{});
}

inline constexpr const char* screen_name = "screened selection";
// A block of threads for each of so many rows is enough for all SMs.
inline constexpr extent many_rows = 4 * multiprocessors;

// Finds the sizes of rows of x, and these in bf16; `k` has no columns of G and no parts yet.
template <class Queue>
void find_sizes(Queue& queue, const screen_rows<float>& k, extent tokens) {
  queue.launch(screen_name, screen_sizes_kernel{k}, tokens);
}

// Selects among scores by tensor cores.
template <class Queue>
void select_screened(Queue& queue, screen_rows<float> k, const stored_table& columns,
                     extent tokens) {
  with_screen_parts(k.columns, k.to.most, tokens, [&]<class How>(const row_parts& parts, How) {
    k.parts = parts;
    queue.launch(screen_name, screen_bounds_kernel<How>{k}, tokens * parts.count());
  });
  with_table_type<float>(columns.stored, [&]<class S>(S*) {
    const S* const g = static_cast<const S*>(columns.data);
    const bool is_whole = k.depth % 4 == 0 && k.sum_block % 4 == 0 && is_aligned(g) &&
                          is_aligned(k.a.data, k.a.stride);
    const screen_rows<S> rows{k.a,           k.scratch, k.to,      g,           k.by_norm,
                              k.by_rounding, k.depth,   k.columns, k.sum_block, k.takes_zeros,
                              k.finish,      k.parts,   is_whole};
    const extent parts = k.parts.count(), parts_each = tokens >= many_rows ? parts : 1;
    queue.launch(screen_name, screen_candidates_kernel<S>{rows, parts_each},
                 tokens * (parts / parts_each));
    queue.launch(screen_name, screen_scores_kernel<S>{rows, tokens},
                 warps::blocks(tokens * k.parts.count()));
    queue.launch(screen_name, screen_select_kernel<S>{rows}, tokens);
  });
}

// The sum of selected rows of a table; `k` has no table yet.
template <class T, class Queue>
void gather(Queue& queue, const gather_columns<T, T, 1>& k, const stored_table& table,
            extent tokens) {
  with_weight_type<T>(table.stored, [&]<class S>(S*) {
    const S* const data = static_cast<const S*>(table.data);
    constexpr unsigned own = numbers_each<T>;
    const bool is_whole = k.columns % own == 0 && k.table_row % own == 0 &&
                          is_aligned(data, k.columns / own * 16) &&
                          (!is_scaled<S> || table.scale_block % own == 0);
    with_columns<T>(
        is_whole, tokens * k.columns, [&]<unsigned Own>(std::integral_constant<unsigned, Own>) {
          const gather_columns<T, S, Own> kernel{k.from,   data,         k.c,
                                                 k.rows,   k.columns,    k.table_row,
                                                 k.finish, table.scales, table.scale_block};
          queue.each("gather", kernel, tokens * (k.columns / Own));
        });
  });
}

// The end of a group.
template <class T, class Queue>
void put(Queue& queue, const put_rows<T>& k, extent tokens) {
  const bool is_whole = k.columns % numbers_each<T> == 0 && is_aligned(k.a.data, k.a.stride);
  with_columns<T>(is_whole, tokens * k.columns,
                  [&]<unsigned Own>(std::integral_constant<unsigned, Own>) {
                    queue.each("put", put_columns<T, Own>{k}, tokens * (k.columns / Own));
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
