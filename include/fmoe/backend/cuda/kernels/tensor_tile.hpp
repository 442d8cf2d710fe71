// SPDX-License-Identifier: MIT
// What a warp has of a product on tensor cores: parts of 16 rows by 8 columns, of which each lane
// has four numbers, as mma.m16n8k8 of the PTX ISA says. Their sums of a block of terms are added to
// the sums of the blocks before, in order, or are left to add_sums.
#pragma once

#include <fmoe/backend/cuda/kernels/product.hpp>

namespace fmoe::cuda {

template <unsigned RowParts, unsigned ColumnParts>
class tensor_tile {
 public:
  using parts = float[RowParts][ColumnParts][4];

  parts sums = {};  // of the block that is summed

  // The warp's first row and column.
  FMOE_DEVICE tensor_tile(const product<float>& of, const product_part& part, unsigned row,
                          unsigned column, unsigned lane)
      : of_(of),
        part_(part),
        row_(part.first + row + lane / 4),
        column_(part.column + column + lane % 4 * 2),
        is_first_(!of.accumulate) {
    if (is_whole() && of.accumulate) each(totals_, rows_of_c(), [](float c, float& x) { x = c; });
  }

  // Does one block of threads add up the whole sum?
  FMOE_DEVICE bool is_whole() const { return of_.sums == nullptr; }

  // Takes the sums of a block of terms, which ends with that from `term` on.
  FMOE_DEVICE void end_block(index term) {
    if (!is_whole()) {
      const index block = term / of_.sum_block;
      return each(
          sums, [&](index row) { return of_.sums_of(block, part_.position, row); },
          [](float& to, float sum) { to = sum; });
    }
    FMOE_UNROLL
    for (unsigned n = 0; n < count; ++n) {
      float& total = number(totals_, n);
      total = is_first_ ? number(sums, n) : sum_of(total, number(sums, n));
    }
    is_first_ = false;
  }
  FMOE_DEVICE void clear_sums() {
    FMOE_UNROLL
    for (unsigned n = 0; n < count; ++n) number(sums, n) = 0;
  }

  // Writes what has become of the numbers.
  FMOE_DEVICE void finish() {
    if (!is_whole()) return;
    if (of_.finish.count == 0)
      return each(totals_, rows_of_c(), [](float& c, float total) { c = total; });
    // The passes are long, so they stand here once, though a thread has many numbers: the next ones
    // move to the first registers.
    const extent expert = of_.group.expert_of(part_.first), at_c = of_.positions[part_.position].c;
    FMOE_UNROLL_BY(1)
    for (unsigned quad = 0; quad < count / 4; ++quad) {
      const index row = row_ + 16 * (quad / ColumnParts),
                  column = column_ + 8 * (quad % ColumnParts);
      float (&first)[4] = totals_[0][0];
      const auto place = [&](unsigned i) {
        const index r = row + i / 2 * 8, c = column + i % 2;
        return number_place{r < part_.end ? r : part_.first,
                            at_c + (c < of_.columns ? c : part_.column)};
      };
      of_.finish(first, expert, place);
      FMOE_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const index r = row + i / 2 * 8, c = column + i % 2;
        if (r < part_.end && c < of_.columns) of_.c.row(r)[at_c + c] = first[i];
      }
      FMOE_UNROLL
      for (unsigned n = 4; n < count; ++n) number(totals_, n - 4) = number(totals_, n);
    }
  }

 private:
  static constexpr unsigned count = RowParts * ColumnParts * 4;

  FMOE_DEVICE static float& number(parts& of, unsigned n) {
    return of[n / 4 / ColumnParts][n / 4 % ColumnParts][n % 4];
  }
  FMOE_DEVICE auto rows_of_c() const {
    return [this](index row) { return of_.c.row(row) + of_.positions[part_.position].c; };
  }
  // Calls f(rows(row)[column], number) for the numbers that exist.
  template <class Rows, class F>
  FMOE_DEVICE void each(parts& numbers, const Rows& rows, const F& f) const {
    FMOE_UNROLL
    for (unsigned i = 0; i < 2 * RowParts; ++i) {
      const index row = row_ + 8 * i;
      if (row >= part_.end) continue;
      float* const to = rows(row) + column_;
      FMOE_UNROLL
      for (unsigned n = 0; n < 2 * ColumnParts; ++n) {
        const unsigned c = n / 2 * 8 + n % 2;
        if (column_ + c < of_.columns) f(to[c], numbers[i / 2][n / 2][i % 2 * 2 + n % 2]);
      }
    }
  }

  const product<float>& of_;
  const product_part& part_;
  index row_, column_;
  parts totals_ = {};
  bool is_first_;  // no total has been written
};

}  // namespace fmoe::cuda
