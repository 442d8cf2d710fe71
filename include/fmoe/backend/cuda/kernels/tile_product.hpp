// SPDX-License-Identifier: MIT
// A product of many rows. Each warp makes 32 rows by 32 or 64 columns, and each of its threads 8
// rows by 4 or 8 columns in registers. Asynchronous copies bring the next stages of terms to shared
// memory while one is multiplied.
//
// Lanes 0 to 7 have neighbouring columns and one row, the next 8 the next row: a warp reads four
// rows of `left`, which stand in different banks because a row is followed by 16 empty bytes, and
// 128 neighbouring bytes of `right`. The sums of a block of terms go to memory when it ends, to c
// or to the sums of the product, so that registers are left for two blocks of threads on an SM.
#pragma once

#include <fmoe/backend/cuda/kernels/operand_stages.hpp>

namespace fmoe::cuda {

template <class T, class S, unsigned Down, unsigned Across, unsigned Quads, unsigned Slots>
struct tile_product {
  static constexpr unsigned threads = 32 * Down * Across;
  static constexpr bool is_long_before_sm_90 = is_scaled<S> && Quads > 1;
  static constexpr unsigned terms = 64 / sizeof(T);
  static constexpr unsigned at_once = numbers_each<T> / Quads / (is_scaled<S> ? Quads : 1);
  static constexpr unsigned tile_rows = 32 * Down, tile_columns = 32 * Quads * Across;
  static constexpr stage_shape stage{.threads = threads,
                                     .rows = tile_rows,
                                     .columns = tile_columns,
                                     .terms = terms,
                                     .slots = Slots,
                                     .left_pitch = terms + numbers_each<T>,
                                     .right_pitch = tile_columns,
                                     .has_zeros = true,
                                     .rights_at_once = 8};
  static constexpr extent shared_bytes = stage.template bytes<T, S>();

  product<T> of;

  FMOE_DEVICE extent blocks(extent row_tiles) const {
    return row_tiles * of.position_count * of.parts() * divide_up(of.columns, extent{tile_columns});
  }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    product_part part{};
    if (!part.find(of, b.block(), tile_rows, tile_columns)) return;  // a whole block
    operand_stages<T, S, stage, Block> stages(b, of, part);
    // Quad n of row m of the thread is number m Quads + n.
    pack<T, 4> sums[quads] = {};
    do {  // without terms the sums are 0
      stages.begin();
      if (stages.count() == terms) multiply<true>(b, stages, terms, sums);
      else multiply<false>(b, stages, stages.count(), sums);
      if (stages.ends_block()) flush(b, sums, stages.term() / of.sum_block, stages.ends_sum());
      stages.next();
    } while (stages.has_more());
  }

 private:
  static constexpr unsigned rows_each = 8, quads = rows_each * Quads;

  // The first row and column of a thread in its tile; its other rows are 4 apart.
  FMOE_DEVICE static unsigned row_of(unsigned thread) {
    return thread / 32 / Across * 32 + thread % 32 / 8;
  }
  FMOE_DEVICE static unsigned column_of(unsigned thread) {
    return thread / 32 % Across * (32 * Quads) + thread % 8 * 4;
  }

  FMOE_CALLS_BLOCK
  template <bool Whole, class Block, class Stages>
  FMOE_DEVICE static void multiply(Block& b, const Stages& stages, unsigned count,
                                   pack<T, 4> (&sums)[quads]) {
    const unsigned row = row_of(b.thread()), column = column_of(b.thread());
    FMOE_UNROLL_BY(1)
    for (unsigned q = 0; q < count; q += at_once) {
      pack<T, at_once> x[rows_each];
      FMOE_UNROLL
      for (unsigned m = 0; m < rows_each; ++m) x[m] = stages.template left<at_once>(row + 4 * m, q);
      FMOE_UNROLL
      for (unsigned j = 0; j < at_once; ++j) {
        if (!Whole && q + j >= count) continue;
        FMOE_UNROLL
        for (unsigned n = 0; n < Quads; ++n) {
          const pack<S, 4> stored = stages.template right<4>(q + j, column + 32 * n);
          pack<float, 4> factors;
          if constexpr (is_scaled<S>) factors = stages.template scales<4>(column + 32 * n);
          pack<T, 4> y;
          FMOE_UNROLL
          for (unsigned e = 0; e < 4; ++e) {
            y.of[e] = widened(stored.of[e]);
            if constexpr (is_scaled<S>) y.of[e] = product_of(y.of[e], factors.of[e]);
          }
          FMOE_UNROLL
          for (unsigned m = 0; m < rows_each; ++m) FMOE_UNROLL
          for (unsigned e = 0; e < 4; ++e) {
            T& sum = sums[m * Quads + n].of[e];
            sum = fused(x[m].of[j], y.of[e], sum);
          }
        }
      }
    }
  }

  // Adds the sums of a block of terms to c, or writes them as they are, and begins new ones. The
  // last block of a whole sum is followed by the passes.
  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void flush(Block& b, pack<T, 4> (&sums)[quads], index block, bool is_last) const {
    product_part part{};
    part.find(of, b.block(), tile_rows, tile_columns);
    const bool is_whole = of.sums == nullptr;
    const index row = part.first + row_of(b.thread());
    const index column = part.column + column_of(b.thread());
    const extent at_c = of.positions[part.position].c + column;
    const extent stride = is_whole ? of.c.stride : of.sum_pitch();
    T* const to = is_whole ? of.c.row(row) + at_c : of.sums_of(block, part.position, row) + column;
    const quads_of_memory memory{to, 4 * stride, row < part.end ? part.end - row : 0,
                                 column < of.columns ? of.columns - column : 0,
                                 !is_whole || of.aligned_c};
    if (is_whole && (block != 0 || of.accumulate)) memory.add(sums);
    else memory.write(sums);
    if (is_whole && is_last && of.finish.count != 0)
      memory.finish(of.finish, row, at_c, of.group.expert_of(part.first));
    FMOE_UNROLL
    for (pack<T, 4>& quad : sums) quad = {};
  }

  // Where the numbers of a thread go.
  struct quads_of_memory {
    T* to;
    extent step;          // from one of its rows to the next
    index rows, columns;  // from the first one on, some of other threads
    bool aligned;

    FMOE_DEVICE bool has_row(unsigned m) const { return 4 * m < rows; }
    FMOE_DEVICE bool has_quad(unsigned n) const { return aligned && 32 * n + 4 <= columns; }
    FMOE_DEVICE bool has(unsigned n, unsigned e) const { return 32 * n + e < columns; }
    FMOE_DEVICE T* quad(unsigned m, unsigned n) const { return to + m * step + 32 * n; }

    FMOE_DEVICE pack<T, 4> read(unsigned m, unsigned n) const {
      pack<T, 4> x = {};
      if (!has_row(m)) return x;
      if (has_quad(n)) return load_pack<T, 4>(quad(m, n));
      FMOE_UNROLL
      for (unsigned e = 0; e < 4; ++e)
        if (has(n, e)) x.of[e] = quad(m, n)[e];
      return x;
    }
    FMOE_DEVICE static pack<T, 4> sum(const pack<T, 4>& x, const pack<T, 4>& y) {
      pack<T, 4> made;
      FMOE_UNROLL
      for (unsigned e = 0; e < 4; ++e) made.of[e] = sum_of(x.of[e], y.of[e]);
      return made;
    }

    // A quarter of the numbers are read before the first one is written.
    FMOE_DEVICE void add(const pack<T, 4> (&sums)[quads]) const {
      constexpr unsigned each = quads / 4;
      FMOE_UNROLL
      for (unsigned first = 0; first < quads; first += each) {
        pack<T, 4> before[each];
        FMOE_UNROLL
        for (unsigned i = 0; i < each; ++i)
          before[i] = read((first + i) / Quads, (first + i) % Quads);
        FMOE_UNROLL
        for (unsigned i = 0; i < each; ++i)
          write((first + i) / Quads, (first + i) % Quads, sum(before[i], sums[first + i]));
      }
    }

    FMOE_DEVICE void write(const pack<T, 4> (&sums)[quads]) const {
      FMOE_UNROLL
      for (unsigned i = 0; i < quads; ++i) write(i / Quads, i % Quads, sums[i]);
    }
    FMOE_DEVICE void write(unsigned m, unsigned n, const pack<T, 4>& x) const {
      if (!has_row(m)) return;
      if (has_quad(n)) return store_pack<T, 4>(quad(m, n), x);
      FMOE_UNROLL
      for (unsigned e = 0; e < 4; ++e)
        if (has(n, e)) quad(m, n)[e] = x.of[e];
    }

    // The passes are long and need registers, so they stand here once, and read what was written:
    // four quads at a time, each of which moves to the first registers.
    FMOE_DEVICE void finish(const passes<T>& passes, extent row, extent column,
                            extent expert) const {
      constexpr unsigned each = 4;
      FMOE_UNROLL_BY(1)
      for (unsigned first = 0; first < quads; first += each) {
        pack<T, 4> x[each];
        FMOE_UNROLL
        for (unsigned i = 0; i < each; ++i) x[i] = read((first + i) / Quads, (first + i) % Quads);
        FMOE_UNROLL_BY(1)
        for (unsigned i = first; i < first + each; ++i) {
          const unsigned m = i / Quads, n = i % Quads;
          if (has_row(m) && has(n, 0)) {
            passes(x[0].of, expert, [&](unsigned e) {
              return number_place{row + 4 * m, column + 32 * n + (has(n, e) ? e : 0)};
            });
            write(m, n, x[0]);
          }
          FMOE_UNROLL
          for (unsigned next = 0; next + 1 < each; ++next) x[next] = x[next + 1];
        }
      }
    }
  };
};

// 128 by 128 numbers, or 64 by 64 where there are too few of the large ones for all SMs.
template <class T, class S = T>
using large_tile_product = tile_product<T, S, 4, 2, 2, 2>;
template <class T, class S = T>
using small_tile_product = tile_product<T, S, 2, 2, 1, 3>;

}  // namespace fmoe::cuda
