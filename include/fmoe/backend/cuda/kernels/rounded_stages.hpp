// SPDX-License-Identifier: MIT
// The way of a product's operands to tensor cores that read shared memory: some terms at a time,
// which is a stage. A thread reads its part of a stage into registers while the one before is
// multiplied, and rounds it for the whole block on the way to shared memory.
#pragma once

#include <fmoe/backend/cuda/kernels/product.hpp>
#include <fmoe/backend/cuda/kernels/tensor_words.hpp>

namespace fmoe::cuda {

// Where the words of a stage lie: of each kind the rows and then the columns.
template <math How>
struct rounded_layout {
  using words = tensor_words<How>;
  static constexpr unsigned rows = large_tile, columns = tensor_tile_columns,
                            right = rows * words::of_row, kind = right + columns * words::of_row,
                            slot = words::kinds * kind, slots = 2;
  static constexpr extent bytes = slots * slot * extent{sizeof(std::uint32_t)};
};

template <math How, class S, class Block>
class rounded_stages : rounded_layout<How> {
  using layout = rounded_layout<How>;
  using layout::rows, layout::columns, layout::right, layout::kind, layout::slot, layout::slots;
  using words = typename layout::words;
  using terms = stages_of_sum<tensor_stage>;
  // A thread brings 4 terms of some rows, and half of the terms of a column.
  static constexpr unsigned threads = 256, fours = tensor_stage / 4, down = threads / fours,
                            lefts = rows / down, own_terms = columns * tensor_stage / threads;
  static_assert(!is_scaled<S> || tensor_stage <= scale_group);

 public:
  // Brings the first stage.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE rounded_stages(Block& b, const product<float>& of, const product_part& part)
      : block_(b),
        of_(of),
        shared_(b.template array<std::uint32_t>(slots * slot)),
        now_{part.first_term, part.end_term, of.sum_block} {
    const unsigned row = b.thread() / fours, term = first_left();
    left_place_ = words::place(row, term / words::numbers);
    left_ = part.left(of) + part.first_term + term;
    FMOE_UNROLL
    for (unsigned i = 0; i < lefts; ++i) {
      const unsigned here = row + i * down;
      left_rows_[i] = (here < part.end - part.first ? here : 0) * static_cast<index>(of.a.stride);
    }
    const unsigned column = b.thread() % columns, first = first_right(),
                   most = of.pitch - part.column, here = column < most ? column : 0;
    right_place_ = right + words::place(column, first / words::numbers);
    right_ = part.template right<S>(of) + extent{part.first_term + first} * of.pitch + here;
    if constexpr (is_scaled<S>)
      scales_ = part.scales(of) + (here + (of.pitch - of.scale_pitch) < most ? here : 0);
    if (!now_.has_more()) return;
    fetch(now_);
    write(0);
    fetch_behind(now_);
  }

  FMOE_DEVICE bool has_more() const { return now_.has_more(); }
  FMOE_DEVICE index term() const { return now_.term; }
  FMOE_DEVICE bool ends_block() const { return now_.ends_block(); }

  // Begins the products of a warpgroup with a stage, when all threads have written it: 64 rows from
  // `row` on with all columns. `adds` is false if the sums begin here.
  FMOE_CALLS_BLOCK
  template <class Sums>
  FMOE_DEVICE void begin_products(Sums& sums, unsigned row, bool adds) const {
    block_.show_products();
    block_.sync();
    block_.begin_products(sums);
    const unsigned left = at_ + row * words::of_row, columns_at = at_ + right;
    FMOE_UNROLL
    for (unsigned word = 0; word < words::of_row; word += words::of_product) {
      if constexpr (words::is_split) {  // the product of the two small parts is lost
        block_.template multiply<How>(sums, shared_, left + kind, columns_at, word,
                                      adds || word != 0);
        block_.template multiply<How>(sums, shared_, left, columns_at + kind, word, true);
        block_.template multiply<How>(sums, shared_, left, columns_at, word, true);
      } else {
        block_.template multiply<How>(sums, shared_, left, columns_at, word, adds || word != 0);
      }
    }
    block_.commit_products();
  }
  // Writes the next stage beside the one that is multiplied, and begins to read the one behind it.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void bring_next() {
    terms ahead = now_;
    ahead.next(of_.sum_block);
    if (!ahead.has_more()) return;
    write(slot - at_);
    fetch_behind(ahead);
  }
  // Goes on to the next stage, when this one has been multiplied.
  FMOE_DEVICE void next() {
    now_.next(of_.sum_block);
    at_ = slot - at_;
  }

 private:
  // The thread's first term of a row, and of a column.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE unsigned first_left() const { return block_.thread() % fours * 4; }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE unsigned first_right() const { return block_.thread() / columns * own_terms; }

  FMOE_CALLS_BLOCK
  FMOE_DEVICE void fetch_behind(terms stage) {
    const index count = stage.count();
    left_ += count;
    right_ += extent{count} * of_.pitch;
    stage.next(of_.sum_block);
    if (stage.has_more()) fetch(stage);
  }

  // Numbers behind the last term are 0. What stands behind the last row or column changes no number
  // that anybody reads, so others are read there.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void fetch(const terms& stage) {
    const unsigned count = stage.count();
    const bool is_aligned = count == tensor_stage && of_.aligned_a;
    FMOE_UNROLL
    for (unsigned i = 0; i < lefts; ++i) {
      const float* const from = left_ + left_rows_[i];
      if (is_aligned) {
        lefts_[i] = load_pack<float, 4>(from);
      } else {
        FMOE_UNROLL
        for (unsigned e = 0; e < 4; ++e) lefts_[i].of[e] = first_left() + e < count ? from[e] : 0;
      }
    }
    if (count == tensor_stage) {
      FMOE_UNROLL
      for (unsigned e = 0; e < own_terms; ++e) rights_[e] = right_[extent{e} * of_.pitch];
    } else {
      const S* from = right_;
      FMOE_UNROLL
      for (unsigned e = 0; e < own_terms; ++e) {
        rights_[e] = S{};
        if (first_right() + e < count) rights_[e] = *from;
        from += of_.pitch;
      }
    }
    if constexpr (is_scaled<S>)
      scale_ = scales_[extent{stage.term / scale_group} * of_.scale_pitch];
  }

  // Eight neighbouring lanes write to other banks.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void write(unsigned to) {
    FMOE_UNROLL
    for (unsigned i = 0; i < lefts; ++i)
      write(to + left_place_ + i * down * words::of_row, lefts_[i].of);
    constexpr unsigned each = 4 * words::numbers;  // of an access
    FMOE_UNROLL
    for (unsigned n = 0; n < own_terms; n += each) {
      float some[each];
      FMOE_UNROLL
      for (unsigned e = 0; e < each; ++e) {
        some[e] = widened(rights_[n + e]);
        if constexpr (is_scaled<S>) some[e] = product_of(some[e], scale_);
      }
      write(to + (right_place_ ^ n / words::numbers), some);
    }
  }
  FMOE_CALLS_BLOCK
  template <unsigned Count>
  FMOE_DEVICE void write(unsigned to, const float (&x)[Count]) {
    const typename words::template some<Count> made(x);
    FMOE_UNROLL
    for (unsigned k = 0; k < words::kinds; ++k) block_.write(shared_, to + k * kind, made.of[k]);
  }

  using array = decltype(std::declval<Block&>().template array<std::uint32_t>(0));

  Block& block_;
  const product<float>& of_;
  array shared_;
  unsigned at_ = 0;  // of the stage in shared memory
  terms now_;
  // What the thread reads of a stage, and where it writes it.
  unsigned left_place_, right_place_;
  const float* left_;
  index left_rows_[lefts];  // from there
  const S* right_;
  const float* scales_ = nullptr;
  pack<float, 4> lefts_[lefts];
  S rights_[own_terms];
  float scale_ = 0;
};

}  // namespace fmoe::cuda
