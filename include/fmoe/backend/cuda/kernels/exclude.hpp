// SPDX-License-Identifier: MIT
// A masked sum of products is made again, from the pairs that are kept, wherever a pair is left
// out. The terms come in the CPU's order; a thread makes one number.
#pragma once

#include <fmoe/backend/cuda/kernels/rows.hpp>

namespace fmoe::cuda {

// The steps that one loop takes in each operand and in the result.
struct exclude_loop {
  static constexpr int most_operands = 8;
  extent length = 1, c = 0;
  extent of[most_operands] = {};
};

struct exclude_loops {
  static constexpr int most = 8;
  exclude_loop of[most];
  int count = 0;
  extent places = 1;
};

template <class T>
struct exclude_numbers {
  struct place {
    const T* of[exclude_loop::most_operands];
    extent c = 0;

    FMOE_DEVICE void move(const exclude_loop& a, extent n) {
      for (int k = 0; k < exclude_loop::most_operands; ++k)
        if (a.of[k] != 0) of[k] += n * a.of[k];
      c += n * a.c;
    }
    FMOE_DEVICE void move(const exclude_loops& all, extent n) {
      for (int k = all.count; k-- > 0;) {
        move(all.of[k], n % all.of[k].length);
        n /= all.of[k].length;
      }
    }
  };

  rows_at<const T> operands[exclude_loop::most_operands] = {};
  rows_at<T> c;
  int count, factors;  // operands, and those without an axis of their own in the result
  exclude_loop group, other;
  exclude_loops inner, outer, free;
  const index *groups, *ends, *left_out;  // in device memory
  extent group_count;
  bool is_row;

  // Numbers of a token's result.
  FMOE_DEVICE extent numbers() const {
    return group_count * (other.c != 0 ? other.length : 1) * free.places;
  }

  FMOE_DEVICE place place_of(extent token, extent of_group) const {
    place at{};
    for (int k = 0; k < count; ++k) at.of[k] = operands[k].row(token);
    at.move(group, groups[of_group]);
    return at;
  }

  FMOE_DEVICE void operator()(extent i) const {
    const extent token = i / numbers(), at_free = i % free.places;
    extent rest = i % numbers() / free.places;
    const extent own = other.c != 0 ? rest % other.length : 0;
    if (other.c != 0) rest /= other.length;
    place at = place_of(token, rest);
    const index *first = left_out + (rest == 0 ? 0 : ends[rest - 1]), *end = left_out + ends[rest];
    T sum = 0;
    for (extent o = 0; o < outer.places; ++o) {
      place p = at;
      p.move(outer, o);
      const index* next = first;
      const extent from = other.c != 0 ? own : 0, until = other.c != 0 ? own + 1 : other.length;
      for (extent n = from; n < until; ++n) {
        while (next != end && *next < n) ++next;
        place here = p;
        here.move(other, n);
        if (next != end && *next == n) continue;
        const T x = coefficient(here);
        if (x != 0) add(here, at_free, x, sum);
      }
    }
    at.move(free, at_free);
    c.row(token)[at.c + own * other.c] = sum;
  }

  // The sum over `inner` of the products of the factors.
  FMOE_DEVICE T coefficient(const place& at) const {
    T sum = 0;
    for (extent n = 0; n < inner.places; ++n) {
      place p = at;
      p.move(inner, n);
      bool counts = true;
      for (int k = 0; k < factors; ++k) counts &= other.of[k] != 0 || *p.of[k] != 0;
      if (!counts) continue;
      T product = 1;
      for (int k = 0; k < factors; ++k) product = product_of(product, *p.of[k]);
      sum = sum_of(sum, product);
    }
    return sum;
  }

  FMOE_DEVICE void add(place at, extent at_free, T coefficient, T& sum) const {
    at.move(free, at_free);
    if (is_row) {
      sum = fused(coefficient, *at.of[factors], sum);
      return;
    }
    T product = coefficient;
    for (int k = factors; k < count; ++k) product = product_of(product, *at.of[k]);
    sum = sum_of(sum, product);
  }
};

// The same sums: a block of threads has 128 numbers of a token and a group, and computes each
// coefficient once for all of them. If the other axis is summed, it takes 128 places of it at a
// time. Otherwise its numbers lie at few places, and each has the terms of its own one.
template <class T>
struct exclude_kernel {
  static constexpr unsigned threads = 128;
  static constexpr extent shared_bytes = threads * sizeof(T);

  exclude_numbers<T> of;

  FMOE_DEVICE bool is_summed() const { return of.other.c == 0; }
  FMOE_DEVICE extent parts() const {
    return divide_up(of.numbers() / of.group_count, extent{threads});
  }
  FMOE_DEVICE extent blocks(extent tokens) const { return tokens * of.group_count * parts(); }

  FMOE_CALLS_BLOCK
  template <class Block>
  FMOE_DEVICE void operator()(Block& b) const {
    const auto coefficients = b.template array<T>(threads);
    const extent first_number = b.block() % parts() * threads, number = first_number + b.thread(),
                 group = b.block() / parts() % of.group_count,
                 token = b.block() / parts() / of.group_count;
    const bool has_number = number < of.numbers() / of.group_count;
    const extent at_free = number % of.free.places, own = is_summed() ? 0 : number / of.free.places;
    auto at = of.place_of(token, group);
    const index* const first_left_out = of.left_out + (group == 0 ? 0 : of.ends[group - 1]);
    const index* const end_left_out = of.left_out + of.ends[group];
    const extent begin = is_summed() ? 0 : first_number / of.free.places;
    extent end = of.other.length;
    if (!is_summed())
      if (const extent last = (first_number + threads - 1) / of.free.places; last < end)
        end = last + 1;
    T sum = 0;
    for (extent o = 0; o < of.outer.places; ++o) {
      auto p = at;
      p.move(of.outer, o);
      for (extent first = begin; first < end; first += threads) {
        const extent rest = end - first;
        const unsigned some = rest < threads ? unsigned(rest) : threads;
        b.sync();  // the coefficients of the last time have been read
        if (b.thread() < some)
          coefficients[b.thread()] =
              coefficient(p, first + b.thread(), first_left_out, end_left_out);
        b.sync();
        if (!has_number) continue;
        const unsigned from = is_summed() ? 0 : unsigned(own - first),
                       until = is_summed() ? some : from + 1;
        for (unsigned n = from; n < until; ++n) {
          const T x = coefficients[n];
          if (x == 0) continue;
          auto here = p;
          here.move(of.other, first + n);
          of.add(here, at_free, x, sum);
        }
      }
    }
    if (!has_number) return;
    at.move(of.free, at_free);
    of.c.row(token)[at.c + own * of.other.c] = sum;
  }

 private:
  // 0 where the pair is left out.
  FMOE_DEVICE T coefficient(typename exclude_numbers<T>::place at, extent n, const index* first,
                            const index* end) const {
    for (const index* next = first; next != end && *next <= n; ++next)
      if (*next == n) return 0;
    at.move(of.other, n);
    return of.coefficient(at);
  }
};

// Makes the sums of `tokens` rows.
template <class T, class Queue>
void exclude(Queue& queue, const exclude_numbers<T>& k, extent tokens) {
  const exclude_kernel<T> kernel{k};
  const bool shares_nothing = k.other.c != 0 && k.free.places == 1;
  if (shares_nothing) queue.each("exclude", k, tokens * k.numbers());
  else queue.launch("exclude", kernel, k.numbers() == 0 ? 0 : kernel.blocks(tokens));
}

}  // namespace fmoe::cuda
