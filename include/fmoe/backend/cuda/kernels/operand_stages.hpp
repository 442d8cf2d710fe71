// SPDX-License-Identifier: MIT
// The way of a product's operands to shared memory: some terms at a time, which is a stage.
// Asynchronous copies bring the next stages while one is multiplied.
#pragma once

#include <fmoe/backend/cuda/kernels/product.hpp>

namespace fmoe::cuda {

// The tile of a block of threads, and its terms in shared memory.
struct stage_shape {
  unsigned threads, rows, columns, terms, slots;
  unsigned left_pitch, right_pitch;  // from row to row
  bool has_zeros;                    // `right`, behind the last term of a stage
  unsigned rights_at_once;           // copies of `right` that are written one after the other

  constexpr unsigned left_size() const { return rows * left_pitch; }
  constexpr unsigned right_size() const { return terms * right_pitch; }
  // A stage has the weights of one scale.
  template <class S>
  constexpr unsigned scales_size() const {
    return is_scaled<S> ? columns : 0;
  }
  template <class T, class S>
  constexpr extent bytes() const {
    return slots * (left_size() * extent{sizeof(T)} + right_size() * extent{sizeof(S)} +
                    scales_size<S>() * extent{sizeof(float)});
  }
};

template <class T, class S, stage_shape Shape, class Block>
class operand_stages {
  static_assert(!is_scaled<S> || Shape.terms <= scale_group);

 public:
  // Begins to copy all stages but one.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE operand_stages(Block& b, const product<T>& of, const product_part& part)
      : block_(b),
        of_(of),
        left_(b.template array<T>(Shape.slots * Shape.left_size())),
        right_(b.template array<S>(Shape.slots * Shape.right_size())),
        scales_(b.template array<float>(Shape.slots * Shape.template scales_size<S>())),
        from_left_(part.left(of)),
        from_right_(part.template right<S>(of)),
        from_scales_(is_scaled<S> ? part.scales(of) : nullptr),
        rows_(part.end - part.first),
        columns_(of.pitch - part.column),
        now_{part.first_term, part.end_term, of.sum_block},
        ahead_(now_) {
    for (unsigned s = 0; s + 1 < Shape.slots; ++s) fetch();
  }

  FMOE_DEVICE bool has_more() const { return now_.has_more(); }
  FMOE_DEVICE index term() const { return now_.term; }
  FMOE_DEVICE unsigned count() const { return now_.count(); }
  FMOE_DEVICE bool ends_block() const { return now_.ends_block(); }
  FMOE_DEVICE bool ends_sum() const { return now_.term + now_.count() == now_.end; }

  // Waits for a stage and begins to copy another one. All threads call this.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void begin() {
    block_.template wait<Shape.slots - 2>();
    block_.sync();
    fetch();
  }
  FMOE_DEVICE void next() {
    now_.next(of_.sum_block);
    slot_ = after(slot_);
  }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void end() { block_.template wait<0>(); }

  // N numbers of the stage, of a row or behind a column.
  FMOE_CALLS_BLOCK
  template <unsigned N>
  FMOE_DEVICE pack<T, N> left(unsigned row, unsigned term) const {
    return block_.template read<N>(left_, lefts() + row * Shape.left_pitch + term);
  }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE T left(unsigned row, unsigned term) const {
    return left_[lefts() + row * Shape.left_pitch + term];
  }
  FMOE_CALLS_BLOCK
  template <unsigned N>
  FMOE_DEVICE pack<S, N> right(unsigned term, unsigned column) const {
    return block_.template read<N>(right_, rights() + term * Shape.right_pitch + column);
  }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE S right(unsigned term, unsigned column) const {
    return right_[rights() + term * Shape.right_pitch + column];
  }
  FMOE_CALLS_BLOCK
  template <unsigned N>
  FMOE_DEVICE pack<float, N> scales(unsigned column) const {
    return block_.template read<N>(scales_, slot_ * Shape.columns + column);
  }
  FMOE_CALLS_BLOCK
  FMOE_DEVICE float scale(unsigned column) const { return scales_[slot_ * Shape.columns + column]; }

 private:
  FMOE_DEVICE static unsigned after(unsigned slot) {
    return slot + 1 == Shape.slots ? 0 : slot + 1;
  }
  FMOE_DEVICE unsigned lefts() const { return slot_ * Shape.left_size(); }
  FMOE_DEVICE unsigned rights() const { return slot_ * Shape.right_size(); }

  // Begins to copy the terms of a stage, and ends a group of copies, even if nothing is left.
  FMOE_CALLS_BLOCK
  FMOE_DEVICE void fetch() {
    if (ahead_.has_more()) {
      const unsigned count = ahead_.count();
      fetch_right(count);
      if (of_.aligned_a) fetch_left<numbers_each<T>>(count);
      else fetch_left<1>(count);
      if constexpr (is_scaled<S>) fetch_scales();
      ahead_.next(of_.sum_block);
    }
    block_.commit();
    ahead_slot_ = after(ahead_slot_);
  }

  FMOE_CALLS_BLOCK
  FMOE_DEVICE void fetch_right(unsigned count) {
    constexpr unsigned each = numbers_each<S>, of_row = Shape.columns / each,
                       all = Shape.terms * of_row;
    FMOE_UNROLL_BY(Shape.rights_at_once)
    for (unsigned first = 0; first < all; first += Shape.threads) {
      const unsigned i = first + block_.thread(), term = i / of_row, n = i % of_row * each;
      if (all % Shape.threads != 0 && i >= all) break;
      if (!Shape.has_zeros && term >= count) break;
      const bool is_inside = (!Shape.has_zeros || term < count) && n < columns_;
      const S* const at = from_right_ + extent{ahead_.term + term} * of_.pitch + n;
      block_.template copy<each>(right_,
                                 ahead_slot_ * Shape.right_size() + term * Shape.right_pitch + n,
                                 is_inside ? at : from_right_, is_inside ? each : 0);
    }
  }

  // Copies Each numbers at a time, and zeros behind the last term and row.
  FMOE_CALLS_BLOCK
  template <unsigned Each>
  FMOE_DEVICE void fetch_left(unsigned count) {
    constexpr unsigned of_row = Shape.terms / Each, all = Shape.rows * of_row;
    FMOE_UNROLL_BY(Each == 1 ? 1 : 4)
    for (unsigned first = 0; first < all; first += Shape.threads) {
      const unsigned i = first + block_.thread(), row = i / of_row, term = i % of_row * Each;
      if (all % Shape.threads != 0 && i >= all) break;
      const unsigned rest = term < count && row < rows_ ? count - term : 0;
      const T* const at =
          from_left_ + extent{row} * static_cast<index>(of_.a.stride) + (ahead_.term + term);
      block_.template copy<Each>(left_,
                                 ahead_slot_ * Shape.left_size() + row * Shape.left_pitch + term,
                                 rest != 0 ? at : from_left_, rest < Each ? rest : Each);
    }
  }

  FMOE_CALLS_BLOCK
  FMOE_DEVICE void fetch_scales() {
    constexpr unsigned each = numbers_each<float>;
    for (unsigned n = block_.thread() * each; n < Shape.columns; n += Shape.threads * each) {
      const bool is_inside = n + (of_.pitch - of_.scale_pitch) < columns_;
      const float* const at =
          from_scales_ + extent{ahead_.term / scale_group} * of_.scale_pitch + n;
      block_.template copy<each>(scales_, ahead_slot_ * Shape.columns + n,
                                 is_inside ? at : from_scales_, is_inside ? each : 0);
    }
  }

  template <class U>
  using array_of = decltype(std::declval<Block&>().template array<U>(0));

  Block& block_;
  const product<T>& of_;
  array_of<T> left_;
  array_of<S> right_;
  array_of<float> scales_;
  const T* from_left_;
  const S* from_right_;
  const float* from_scales_;
  index rows_, columns_;  // of the operands, from the tile's first ones on
  stages_of_sum<Shape.terms> now_, ahead_;
  unsigned slot_ = 0, ahead_slot_ = 0;
};

}  // namespace fmoe::cuda
