// SPDX-License-Identifier: MIT
// As nest_numbers: products, sums and permutations of small tensors. A thread makes Own neighbours
// along the last loop of the result, and walks along the last summed loop without a division.
#pragma once

#include <tuple>

#include <fmoe/backend/cuda/kernels/nest.hpp>
#include <fmoe/backend/cuda/kernels/pack.hpp>

namespace fmoe::cuda {

// With Own > 1 the last loop of the result has whole groups of Own neighbours of c, of which a and
// b have neighbours, too, or one number for all; every group of neighbours is one access.
template <class T, unsigned Own>
struct nest_columns {
  nest_numbers<T> of;

  FMOE_DEVICE void operator()(extent i) const {
    const extent groups = of.out.places / Own, row = i / groups;
    if (!of.group.has(row)) return;
    const extent expert = of.group.expert_of(row);
    const T* x = of.a.row(of.picks ? of.group.token_of(row) : row, expert);
    const T* y = of.b.data == nullptr ? nullptr : of.b.row(row, expert);
    extent at = 0;
    of.out.move(i % groups * Own, x, y, at);
    pack<T, Own> made = of.is_copy ? load_neighbours<Own>(x, last_a()) : sum(x, y);
    of.finish(made.of, expert, [&](unsigned e) { return number_place{row, at + e}; });
    store_pack<T, Own>(of.c.row(row) + at, made);
  }

 private:
  FMOE_DEVICE extent last_a() const {
    return of.out.count == 0 ? 0 : of.out.of[of.out.count - 1].a;
  }
  FMOE_DEVICE extent last_b() const {
    return of.out.count == 0 ? 0 : of.out.of[of.out.count - 1].b;
  }

  FMOE_DEVICE pack<T, Own> sum(const T* x, const T* y) const {
    pack<T, Own> total = {};
    const nest_loop last =
        of.summed.count == 0 ? nest_loop{1, 0, 0, 0} : of.summed.of[of.summed.count - 1];
    const extent rounds = last.length == 0 ? 0 : of.summed.places / last.length;
    for (extent round = 0; round < rounds; ++round) {
      const T *u = x, *w = y;
      extent unused = 0;
      of.summed.move(round * last.length, u, w, unused);
      if (w == nullptr) {
        FMOE_UNROLL_BY(Own == 1 ? 16 : 4)
        for (extent n = 0; n < last.length; ++n) {
          const pack<T, Own> p = load_neighbours<Own>(u + n * last.a, last_a());
          FMOE_UNROLL
          for (unsigned e = 0; e < Own; ++e) total.of[e] = sum_of(total.of[e], p.of[e]);
        }
      } else {
        FMOE_UNROLL_BY(Own == 1 ? 16 : 4)
        for (extent n = 0; n < last.length; ++n) {
          const pack<T, Own> p = load_neighbours<Own>(u + n * last.a, last_a()),
                             q = load_neighbours<Own>(w + n * last.b, last_b());
          FMOE_UNROLL
          for (unsigned e = 0; e < Own; ++e) total.of[e] = fused(p.of[e], q.of[e], total.of[e]);
        }
      }
    }
    return total;
  }
};

// Do neighbours along the last loop of the result lie as Own = 16 bytes needs it? Rows begin at
// the multiples of `a_rows` and `b_rows`, and those of c at the multiples of `c_rows`.
template <class T>
bool has_whole_accesses(const nest_loops<T>& out, const nest_loops<T>& summed, const T* a,
                        extent a_rows, const T* b, extent b_rows, const T* c, extent c_rows) {
  constexpr extent own = numbers_each<T>;
  if (out.count == 0) return false;
  const nest_loop& last = out.of[out.count - 1];
  if (last.length % own != 0 || last.c != 1 || last.a > 1 || last.b > 1) return false;
  const auto add = [&](const nest_loop& l) {  // bits of all strides
    a_rows |= l.a;
    b_rows |= l.b;
    c_rows |= l.c;
  };
  for (int i = 0; i + 1 < out.count; ++i) add(out.of[i]);
  for (int i = 0; i < summed.count; ++i) add(summed.of[i]);
  return is_aligned(c, c_rows) && (last.a == 0 || is_aligned(a, a_rows)) &&
         (last.b == 0 || b == nullptr || is_aligned(b, b_rows));
}
template <class T>
bool has_whole_accesses(const nest_numbers<T>& k) {
  const auto& [a, b, c] = std::tie(k.a, k.b, k.c);
  return has_whole_accesses<T>(k.out, k.summed, a.data, a.stride | a.expert, b.data,
                               b.stride | b.expert, c.data, c.stride | c.expert);
}

}  // namespace fmoe::cuda
