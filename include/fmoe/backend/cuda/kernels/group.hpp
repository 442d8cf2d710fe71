// SPDX-License-Identifier: MIT
// The rows of a group: the selected entries of all tokens, sorted by expert and then by token on
// the device, so that one launch of each step works for all experts. It is a counting sort in
// chunks of tokens; the order of no thread decides where a row comes.
#pragma once

#include <fmoe/backend/cuda/kernels/selection.hpp>

namespace fmoe::cuda {

// Where the lists of a sort lie in a block of device memory, in indices.
struct sort_places {
  static constexpr extent chunk_tokens = 64;

  extent tokens, keep, experts, tile_rows;

  constexpr extent chunks() const { return divide_up(tokens, chunk_tokens); }
  constexpr extent rows() const { return tokens * keep; }
  constexpr extent most_tiles() const { return divide_up(rows(), tile_rows) + experts; }
  constexpr extent size() const {
    return 2 + experts + experts * chunks() + 3 * rows() + 2 * most_tiles();
  }
};

// The lists themselves.
struct sort_lists {
  sort_places of;
  index* memory;

  FMOE_DEVICE index* row_count() const { return memory; }
  FMOE_DEVICE index* tile_count() const { return memory + 1; }
  // The rows of each expert, and later the place of its first one.
  FMOE_DEVICE index* of_expert() const { return memory + 2; }
  // By expert: the rows of each chunk of tokens, and later the place of its first one.
  FMOE_DEVICE index* of_chunk(extent expert) const {
    return of_expert() + of.experts + expert * of.chunks();
  }
  FMOE_DEVICE index* tokens() const { return of_chunk(of.experts); }
  FMOE_DEVICE index* experts() const { return tokens() + of.rows(); }
  // The row of each entry of each token.
  FMOE_DEVICE index* rows() const { return experts() + of.rows(); }
  FMOE_DEVICE index* first() const { return rows() + of.rows(); }  // of each tile
  FMOE_DEVICE index* end() const { return first() + of.most_tiles(); }
};

// Calls f(token, entry) for the entries of a chunk that selected an expert, tokens in order.
template <class T, class F>
FMOE_DEVICE void each_entry(const selections_at<T>& selections, extent tokens, extent chunk,
                            extent expert, const F& f) {
  const extent first = chunk * sort_places::chunk_tokens;
  for (extent t = first; t < tokens && t < first + sort_places::chunk_tokens; ++t) {
    const selection_row<T> s = selections.row(t, 0);
    for (index k = 0; k < s.count(); ++k)
      if (s.indices()[k] == expert) f(t, k);
  }
}

// A thread for each expert and chunk counts its entries.
template <class T>
struct count_entries {
  sort_lists lists;
  selections_at<T> selections;

  FMOE_DEVICE void operator()(extent i) const {
    const extent expert = i / lists.of.chunks(), chunk = i % lists.of.chunks();
    index n = 0;
    each_entry(selections, lists.of.tokens, chunk, expert, [&](extent, extent) { ++n; });
    lists.of_chunk(expert)[chunk] = n;
  }
};

// A thread for each expert turns counts of its chunks into places among its rows.
struct add_chunks {
  sort_lists lists;

  FMOE_DEVICE void operator()(extent expert) const {
    index n = 0;
    for (extent chunk = 0; chunk < lists.of.chunks(); ++chunk) {
      const index here = lists.of_chunk(expert)[chunk];
      lists.of_chunk(expert)[chunk] = n;
      n += here;
    }
    lists.of_expert()[expert] = n;
  }
};

// One thread turns the rows of experts into the place of the first one, and cuts them into tiles.
struct add_experts {
  sort_lists lists;

  FMOE_DEVICE void operator()(extent) const {
    index row = 0, tile = 0;
    for (extent e = 0; e < lists.of.experts; ++e) {
      const index end = row + lists.of_expert()[e];
      lists.of_expert()[e] = row;
      for (; row < end; ++tile) {
        lists.first()[tile] = row;
        const index left = end - row, most = static_cast<index>(lists.of.tile_rows);
        row += left < most ? left : most;
        lists.end()[tile] = row;
      }
    }
    *lists.row_count() = row;
    *lists.tile_count() = tile;
  }
};

// A thread for each expert and chunk writes its entries at their places.
template <class T>
struct place_entries {
  sort_lists lists;
  selections_at<T> selections;

  FMOE_DEVICE void operator()(extent i) const {
    const extent expert = i / lists.of.chunks(), chunk = i % lists.of.chunks();
    index row = lists.of_expert()[expert] + lists.of_chunk(expert)[chunk];
    each_entry(selections, lists.of.tokens, chunk, expert, [&](extent t, extent k) {
      lists.tokens()[row] = static_cast<index>(t);
      lists.experts()[row] = static_cast<index>(expert);
      lists.rows()[t * lists.of.keep + k] = row++;
    });
  }
};

// The end of a group: c[t] is the sum of the rows of the token's experts, in their order, times the
// weights of the selection; then the passes. A thread makes one number.
template <class T>
struct put_rows {
  rows_at<const T> a;
  rows_at<T> c;
  selections_at<T> selections;
  const index* rows;  // of each entry of each token
  extent columns;
  passes<T> finish;

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / columns, n = i % columns;
    const selection_row<T> s = selections.row(token, 0);
    T sum = 0;
    for (index k = 0; k < s.count(); ++k)
      sum = fused(s.values()[k], a.row(rows[token * selections.keep + k])[n], sum);
    c.row(token)[n] = finish(sum, token, n);
  }
};

}  // namespace fmoe::cuda
