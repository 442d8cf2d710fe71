// SPDX-License-Identifier: MIT
// As nest_numbers: products, sums and permutations of small tensors. A thread makes Own neighbours
// along the last loop of the result, and walks along the last summed loop without a division.
#pragma once

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
    pack<T, Own> made = of.is_copy ? neighbours(x, last_a()) : sum(x, y);
    if (of.finish.count != 0) {
      FMOE_UNROLL_BY(1)
      for (unsigned e = 0; e < Own; ++e) {
        const T finished = of.finish(made.of[0], row, at + e, expert);
        FMOE_UNROLL
        for (unsigned next = 0; next + 1 < Own; ++next) made.of[next] = made.of[next + 1];
        made.of[Own - 1] = finished;
      }
    }
    store_pack<T, Own>(of.c.row(row) + at, made);
  }

 private:
  FMOE_DEVICE extent last_a() const {
    return of.out.count == 0 ? 0 : of.out.of[of.out.count - 1].a;
  }
  FMOE_DEVICE extent last_b() const {
    return of.out.count == 0 ? 0 : of.out.of[of.out.count - 1].b;
  }

  FMOE_DEVICE static pack<T, Own> neighbours(const T* p, extent stride) {
    if (Own > 1 && stride != 0) return load_pack<T, Own>(p);
    pack<T, Own> all;
    FMOE_UNROLL
    for (unsigned e = 0; e < Own; ++e) all.of[e] = *p;
    return all;
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
        FMOE_UNROLL_BY(Own == 1 ? 8 : 4)
        for (extent n = 0; n < last.length; ++n) {
          const pack<T, Own> p = neighbours(u + n * last.a, last_a());
          FMOE_UNROLL
          for (unsigned e = 0; e < Own; ++e) total.of[e] = sum_of(total.of[e], p.of[e]);
        }
      } else {
        FMOE_UNROLL_BY(Own == 1 ? 8 : 4)
        for (extent n = 0; n < last.length; ++n) {
          const pack<T, Own> p = neighbours(u + n * last.a, last_a()),
                             q = neighbours(w + n * last.b, last_b());
          FMOE_UNROLL
          for (unsigned e = 0; e < Own; ++e) total.of[e] = fused(p.of[e], q.of[e], total.of[e]);
        }
      }
    }
    return total;
  }
};

// Do neighbours along the last loop of the result lie as Own = 16 bytes needs it?
template <class T>
bool has_whole_accesses(const nest_numbers<T>& k) {
  constexpr extent own = numbers_each<T>;
  if (k.out.count == 0) return false;
  const nest_loop& last = k.out.of[k.out.count - 1];
  if (last.length % own != 0 || last.c != 1 || last.a > 1 || last.b > 1) return false;
  extent a = 0, b = 0, c = 0;  // bits of all strides
  const auto add = [&](const nest_loop& l) {
    a |= l.a;
    b |= l.b;
    c |= l.c;
  };
  for (int i = 0; i + 1 < k.out.count; ++i) add(k.out.of[i]);
  for (int i = 0; i < k.summed.count; ++i) add(k.summed.of[i]);
  const auto fits = [&](const auto& rows, extent strides) {
    return is_aligned(rows.data, rows.stride | rows.expert | strides);
  };
  return fits(k.c, c) && (last.a == 0 || fits(k.a, a)) &&
         (last.b == 0 || k.b.data == nullptr || fits(k.b, b));
}

}  // namespace fmoe::cuda
