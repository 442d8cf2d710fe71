// SPDX-License-Identifier: MIT
// Computes a masked sum of products of one token again from the pairs that are kept, wherever a
// pair is left out. Nothing is subtracted, so nothing cancels, and a sum whose terms are all left
// out is exactly 0. Terms that other factors make 0 are skipped.
#pragma once

#include <array>
#include <bit>

#include <fmoe/backend/cpu/kernels/nest.hpp>
#include <fmoe/base/memory.hpp>

namespace fmoe::cpu {

struct exclude_place {  // offsets
  std::array<extent, exclude_step::most_operands> of{};
  extent c = 0;

  exclude_place after(const exclude_step::axis& a, extent n) const {
    exclude_place p = *this;
    for (extent k = 0; k < a.strides.size(); ++k) p.of[k] += n * a.strides[k];
    p.c += n * a.c;
    return p;
  }
};

template <class F>
void each_place(std::span<const exclude_step::axis> axes, const exclude_place& from, F f) {
  if (axes.empty()) return f(from);
  for (extent n = 0; n < axes.front().length; ++n)
    each_place(axes.subspan(1), from.after(axes.front(), n), f);
}

template <class T, class Arch>
class excluder {
 public:
  // Places of the other axis whose coefficients are computed at once.
  static constexpr extent block = 512;
  static constexpr std::uint64_t low_lanes = (std::uint64_t{1} << lanes<T, Arch>)-1;
  using rows = std::array<const T*, exclude_step::most_operands>;

  excluder(const exclude_step& s, const rows& from, T* c) noexcept : s_(s), from_(from), c_(c) {}

  void run() const noexcept {
    extent first = 0;
    for (extent g = 0; g < s_.groups.size(); ++g) {
      const std::span<const extent> left_out(s_.left_out.data() + first, s_.ends[g] - first);
      const auto at = exclude_place{}.after(s_.group, s_.groups[g]);
      if (s_.other.c != 0)
        for (extent i = 0; i < s_.other.length; ++i) clear(at.after(s_.other, i));
      else clear(at);
      each_place(s_.outer, at, [&](const exclude_place& p) { add_kept(p, left_out); });
      first = s_.ends[g];
    }
  }

 private:
  void clear(const exclude_place& at) const noexcept {
    if (s_.is_row) std::fill_n(c_ + at.c, s_.free[0].length, T(0));
    else each_place(s_.free, at, [&](const exclude_place& p) { c_[p.c] = 0; });
  }

  void add_kept(const exclude_place& at, std::span<const extent> left_out) const noexcept {
    alignas(cache_line) T coefficients[block];
    for (extent first = 0; first < s_.other.length; first += block) {
      const extent n = std::min(block, s_.other.length - first);
      const auto here = at.after(s_.other, first);
      std::fill_n(coefficients, n, T(0));
      bool some = false;
      each_place(s_.inner, here,
                 [&](const exclude_place& p) { some |= add_products(p, n, coefficients); });
      for (extent at_lane = 0; some && at_lane < n; at_lane += lanes<T, Arch>) {
        const auto part =
            load_part<T, Arch>(coefficients + at_lane, std::min(lanes<T, Arch>, n - at_lane));
        std::uint64_t wanted = low_lanes & ~to_bits<T, Arch>(part == vec<T, Arch>(T(0)));
        for (; wanted != 0; wanted &= wanted - 1) {
          const extent i = at_lane + static_cast<extent>(std::countr_zero(wanted));
          while (!left_out.empty() && left_out.front() < first + i) left_out = left_out.subspan(1);
          if (!left_out.empty() && left_out.front() == first + i) continue;
          if (s_.is_row) add_row(here, i, coefficients[i]);
          else add(here.after(s_.other, i), coefficients[i]);
        }
      }
    }
  }

  // Adds the products of those operands that have no axis of their own in the result, for n places
  // of the other axis. Returns false if an operand without that axis is 0, which is frequent: most
  // heads leave most experts out.
  bool add_products(const exclude_place& at, extent n, T* coefficients) const noexcept {
    for (extent k = 0; k < s_.factors; ++k)
      if (s_.other.strides[k] == 0 && from_[k][at.of[k]] == 0) return false;
    for (extent i = 0; i < n; i += lanes<T, Arch>) {
      const extent part = std::min(lanes<T, Arch>, n - i);
      vec<T, Arch> product(T(1));
      for (extent k = 0; k < s_.factors; ++k) {
        const extent stride = s_.other.strides[k];
        product = product * load_strided<T, Arch>(from_[k] + at.of[k] + i * stride, stride, part);
      }
      store_part<T, Arch>(coefficients + i, part,
                          load_part<T, Arch>(coefficients + i, part) + product);
    }
    return true;
  }

  // c += coefficient times the only other operand, which is contiguous in both. This takes a tenth
  // of the time of the general form below.
  void add_row(const exclude_place& at, extent i, T coefficient) const noexcept {
    const T* const row = from_[s_.factors] + at.of[s_.factors] + i * s_.other.strides[s_.factors];
    T* const c = c_ + at.c + i * s_.other.c;
    const vec<T, Arch> scale(coefficient);
    const extent n = s_.free[0].length, whole = n / lanes<T, Arch> * lanes<T, Arch>;
    for (extent k = 0; k < whole; k += lanes<T, Arch>)
      store<T, Arch>(c + k, fmadd(scale, load<T, Arch>(row + k), load<T, Arch>(c + k)));
    if (whole < n)
      store_part<T, Arch>(c + whole, n - whole,
                          fmadd(scale, load_part<T, Arch>(row + whole, n - whole),
                                load_part<T, Arch>(c + whole, n - whole)));
  }

  // c += coefficient times the product of the other operands.
  void add(const exclude_place& at, T coefficient) const noexcept {
    if (s_.free.empty() && s_.operands.size() == s_.factors) {
      c_[at.c] += coefficient;
      return;
    }
    const exclude_step::axis one{1, 1, vector<extent>()};
    const std::span axes(s_.free);
    const exclude_step::axis& last = axes.empty() ? one : axes.back();
    const extent width = last.c == 1 ? lanes<T, Arch> : 1;
    each_place(axes.first(axes.empty() ? 0 : axes.size() - 1), at, [&](const exclude_place& p) {
      for (extent i = 0; i < last.length; i += width) {
        const extent part = std::min(width, last.length - i);
        vec<T, Arch> product(coefficient);
        for (extent k = s_.factors; k < s_.operands.size(); ++k) {
          const extent stride = last.strides[k];
          product = product * load_strided<T, Arch>(from_[k] + p.of[k] + i * stride, stride, part);
        }
        T* const c = c_ + p.c + i * last.c;
        store_part<T, Arch>(c, part, load_part<T, Arch>(c, part) + product);
      }
    });
  }

  const exclude_step& s_;
  const rows& from_;
  T* c_;
};

}  // namespace fmoe::cpu
