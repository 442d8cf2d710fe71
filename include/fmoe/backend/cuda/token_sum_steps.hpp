// SPDX-License-Identifier: MIT
// Launches a sum over the tokens of a call: in parts where few threads would make its numbers.
#pragma once

#include <fmoe/backend/cuda/kernels/nest_columns.hpp>
#include <fmoe/backend/cuda/kernels/product_choice.hpp>
#include <fmoe/backend/cuda/kernels/token_product.hpp>

namespace fmoe::cuda {

// Results of more numbers have enough threads without parts.
inline constexpr extent most_in_parts = extent{1} << 20;

// Returns the elements for sums of blocks of tokens that a result makes use of.
inline extent room_for_parts(extent places, extent tokens, extent block) {
  if (places > most_in_parts || tokens <= block) return 0;
  return std::min(places * divide_up(tokens, block), most_sums);
}

// Calls sum(parts) and then add_parts for as many blocks of tokens as there is room for.
template <class T, class Queue, class Sum>
void sum_parts(Queue& queue, T* c, const nest_loops<T>& out, extent blocks, T* sums, extent room,
               const Sum& sum) {
  const extent most = room / out.places;
  for (extent first = 0; first < blocks; first += most) {
    const part_sums<T> parts{sums, first, std::min(most, blocks - first)};
    sum(parts);
    queue.each("token sum", add_parts<T>{parts, c, out}, out.places);
  }
}

// Is each number the product of a column of a and one of b, both of neighbours?
template <class T>
bool is_token_product(const token_sums<T>& k) {
  if (k.out.count < 2 || k.summed.places != 1 || k.b.data == nullptr) return false;
  const nest_loop &i = k.out.of[k.out.count - 2], &j = k.out.of[k.out.count - 1];
  return i.a == 1 && i.b == 0 && j.a == 0 && j.b == 1 && k.tokens <= ~index{0};
}
// The same sums, with a in the place of b.
template <class T>
token_sums<T> swapped(token_sums<T> k) {
  std::swap(k.a, k.b);
  for (nest_loops<T>* all : {&k.out, &k.summed})
    for (int n = 0; n < all->count; ++n) std::swap(all->of[n].a, all->of[n].b);
  return k;
}

template <class T, class Queue>
void sum_tokens(Queue& queue, const token_sums<T>& k, T* sums, extent room) {
  if (k.b.data != nullptr && !is_token_product(k) && is_token_product(swapped(k)))
    return sum_tokens(queue, swapped(k), sums, room);
  const extent blocks = divide_up(k.tokens, k.block), places = k.out.places;
  const bool has_parts = blocks > 1 && places != 0 && places <= std::min(room, most_in_parts);
  if (is_token_product(k)) {
    extent a = k.a.stride, b = k.b.stride;
    for (int n = 0; n + 2 < k.out.count; ++n) {
      a |= k.out.of[n].a;
      b |= k.out.of[n].b;
    }
    token_product<T> kernel{k, {}, is_aligned(k.a.data, a), is_aligned(k.b.data, b)};
    if (!has_parts || kernel.blocks() >= 2 * multiprocessors)
      return queue.launch("token sum", kernel, places == 0 ? 0 : kernel.blocks());
    return sum_parts(queue, k.c, k.out, blocks, sums, room, [&](const part_sums<T>& parts) {
      kernel.to = parts;
      queue.launch("token sum", kernel, kernel.blocks());
    });
  }
  if (!has_parts) return queue.each("token sum", k, places);
  constexpr unsigned own = numbers_each<T>;
  const bool is_whole = has_whole_accesses<T>(k.out, k.summed, k.a.data, k.a.stride, k.b.data,
                                              k.b.stride, k.a.data, k.a.stride);
  sum_parts(queue, k.c, k.out, blocks, sums, room, [&](const part_sums<T>& parts) {
    if (is_whole) {
      const token_part_sums<T, own> kernel{k, parts};
      queue.each("token sum", kernel, parts.count * (places / own));
    } else {
      const token_part_sums<T, 1> kernel{k, parts};
      queue.each("token sum", kernel, parts.count * places);
    }
  });
}

// `k.lists` are sorted.
template <class T, class Queue>
void sum_selections(Queue& queue, const selection_sums<T>& k, T* sums, extent room) {
  const extent experts = k.lists.of.experts, places = experts * k.columns,
               entries = round_up(k.lists.of.rows(), extent{numbers_each<T>}),
               blocks = divide_up(k.lists.of.tokens, k.block);
  const bool has_parts = blocks > 1 && places != 0 && places <= most_in_parts &&
                         places + entries <= room && k.block % sort_places::chunk_tokens == 0;
  if (!has_parts) return queue.each("token sum", k, places);
  queue.each("token sum", sort_values<T>{k.lists, k.selections, sums}, k.lists.of.rows());
  nest_loops<T> out;
  out.add({experts, 0, 0, k.expert_stride});
  out.add({k.columns, 0, 0, k.column_stride});
  constexpr unsigned own = numbers_each<T>;
  const bool is_whole =
      k.b.data != nullptr && k.columns % own == 0 && is_aligned(k.b.data, k.b.stride);
  T* const parts_at = sums + entries;
  sum_parts(queue, k.c, out, blocks, parts_at, room - entries, [&](const part_sums<T>& parts) {
    if (is_whole) {
      const selection_part_sums<T, own> kernel{k, sums, parts};
      queue.each("token sum", kernel, parts.count * (places / own));
    } else {
      const selection_part_sums<T, 1> kernel{k, sums, parts};
      queue.each("token sum", kernel, parts.count * places);
    }
  });
}

}  // namespace fmoe::cuda
