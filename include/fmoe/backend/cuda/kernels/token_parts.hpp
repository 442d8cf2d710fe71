// SPDX-License-Identifier: MIT
// Sums over the tokens of a call in parts: each block of tokens at its fixed place is summed by
// other threads, and then the sums are added in order. So the bits are those of token_sum.hpp.
#pragma once

#include <fmoe/backend/cuda/kernels/gather_columns.hpp>
#include <fmoe/backend/cuda/kernels/token_sum.hpp>

namespace fmoe::cuda {

// Sums of blocks of tokens, [block, place of the result].
template <class T>
struct part_sums {
  T* sums;
  extent first, count;  // blocks

  FMOE_DEVICE T* of(extent block, extent places) const { return sums + block * places; }
};

// As token_sums: a thread makes Own neighbours of the sum of one block. With Own > 1 they are one
// access.
template <class T, unsigned Own>
struct token_part_sums {
  token_sums<T> of;
  part_sums<T> to;

  FMOE_DEVICE void operator()(extent i) const {
    const extent groups = of.out.places / Own, block = i / groups, place = i % groups * Own;
    const T *x = of.a.data, *y = of.b.data;
    extent unused = 0;
    of.out.move(place, x, y, unused);
    const nest_loop last = of.out.count == 0 ? nest_loop{1, 0, 0, 0} : of.out.of[of.out.count - 1];
    const extent first = (to.first + block) * of.block,
                 end = of.tokens - first < of.block ? of.tokens : first + of.block;
    pack<T, Own> sum = {};
    const auto add = [&](const T* u, const T* w) {
      const pack<T, Own> p = load_neighbours<Own>(u, last.a);
      if (w == nullptr) {
        FMOE_UNROLL
        for (unsigned e = 0; e < Own; ++e) sum.of[e] = sum_of(sum.of[e], p.of[e]);
        return;
      }
      const pack<T, Own> q = load_neighbours<Own>(w, last.b);
      FMOE_UNROLL
      for (unsigned e = 0; e < Own; ++e) sum.of[e] = fused(p.of[e], q.of[e], sum.of[e]);
    };
    if (of.summed.count == 0 && y == nullptr) {
      FMOE_UNROLL_BY(8)
      for (extent t = first; t < end; ++t) add(x + t * of.a.stride, nullptr);
    } else if (of.summed.count == 0) {
      FMOE_UNROLL_BY(4)
      for (extent t = first; t < end; ++t) add(x + t * of.a.stride, y + t * of.b.stride);
    } else {
      for (extent t = first; t < end; ++t)
        for (extent n = 0; n < of.summed.places; ++n) {
          const T *u = x + t * of.a.stride, *w = y == nullptr ? nullptr : y + t * of.b.stride;
          of.summed.move(n, u, w, unused);
          add(u, w);
        }
    }
    store_pack<T, Own>(to.of(block, of.out.places) + place, sum);
  }
};

// Adds the sums of blocks to the result, which the first blocks begin.
template <class T>
struct add_parts {
  part_sums<T> from;
  T* c;
  nest_loops<T> out;

  FMOE_DEVICE void operator()(extent place) const {
    T& to = c[out.place_in_c(place)];
    const T* sum = from.sums + place;
    T total = from.first == 0 ? *sum : sum_of(to, *sum);
    FMOE_UNROLL_BY(8)
    for (extent block = 1; block < from.count; ++block)
      total = sum_of(total, sum[block * out.places]);
    to = total;
  }
};

// The value of each row of sorted entries; a thread has an entry of a token.
template <class T>
struct sort_values {
  sort_lists lists;
  selections_at<T> selections;
  T* values;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / lists.of.keep, k = i % lists.of.keep;
    const selection_row<T> s = selections.row(token, 0);
    if (k < s.count()) values[lists.rows()[i]] = s.values()[k];
  }
};

// As selection_sums: a thread makes Own neighbours of the sum of one block for one index. Without b
// there is one column.
template <class T, unsigned Own>
struct selection_part_sums {
  selection_sums<T> of;
  const T* values;  // of rows
  part_sums<T> to;

  FMOE_DEVICE void operator()(extent i) const {
    const extent groups = of.columns / Own, column = i % groups * Own;
    const extent n = i / groups % of.lists.of.experts, block = i / groups / of.lists.of.experts;
    constexpr extent chunk = sort_places::chunk_tokens;
    const extent chunks = of.block / chunk, first = (to.first + block) * chunks;
    const extent row = row_of(n, first), end = row_of(n, first + chunks);
    sum_of_rows<T, T, Own> sum;
    if (of.b.data == nullptr)
      for (extent r = row; r < end; ++r) sum.sums[0] = sum_of(sum.sums[0], values[r]);
    else
      sum.add(values + row, of.lists.tokens() + row, static_cast<index>(end - row),
              of.b.data + column, of.b.stride);
    pack<T, Own> sums;
    FMOE_UNROLL
    for (unsigned e = 0; e < Own; ++e) sums.of[e] = sum.sums[e];
    const extent experts = of.lists.of.experts;
    store_pack<T, Own>(to.of(block, experts * of.columns) + n * of.columns + column, sums);
  }

 private:
  // The first row of an index whose token is not before the chunk.
  FMOE_DEVICE extent row_of(extent n, extent chunk) const {
    const sort_lists& l = of.lists;
    if (chunk < l.of.chunks()) return l.of_expert()[n] + l.of_chunk(n)[chunk];
    return n + 1 == l.of.experts ? *l.row_count() : l.of_expert()[n + 1];
  }
};

}  // namespace fmoe::cuda
