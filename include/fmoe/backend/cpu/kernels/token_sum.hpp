// SPDX-License-Identifier: MIT
// Sums over the tokens of a call: c[out] = the sum over all tokens, and over `summed`, of a[...]
// b[...]. Blocks of tokens at fixed places, counted from the call's first token, are summed in
// plain order and added in order, so the bits depend neither on tiles nor on how tasks share the
// result.
#pragma once

#include <fmoe/backend/cpu/kernels/token_product.hpp>

namespace fmoe::cpu {

// Says where several tasks cut the result: along its longest axis, in units that are whole tiles of
// the kernel.
struct token_sum_cut {
  extent axis = 0, unit = 1, units = 1;

  explicit token_sum_cut(const token_sum_step& s) noexcept {
    if (s.out.empty()) return;
    constexpr extent rows = 8, columns = 64;
    const auto longest = std::ranges::max_element(s.out, {}, &nest_axis::length);
    axis = static_cast<extent>(longest - s.out.begin());
    unit = longest + 1 == s.out.end() ? columns : rows;
    units = divide_up(longest->length, unit);
  }
};

// Returns how many parts pay off for this number of threads, of work that can be cut into `units`.
inline extent parts_of_work(extent multiply_adds, extent units, extent threads) noexcept {
  constexpr extent least_work = extent{1} << 18, parts_for_each = 4;
  if (threads == 1) return 1;
  const extent most = std::min(units, parts_for_each * threads);
  return std::max<extent>(1, std::min(most, multiply_adds / least_work));
}

inline extent token_sum_parts(const token_sum_step& s, extent tokens, extent threads) noexcept {
  extent work = tokens;
  for (const auto* axes : {&s.out, &s.summed})
    for (const nest_axis& x : *axes) work *= x.length;
  return parts_of_work(work, token_sum_cut(s).units, threads);
}

// Calls f(a, b, c) at each place of the axes.
template <class T>
void each_place(std::span<const nest_axis> axes, const T* a, const T* b, T* c,
                const auto& f) noexcept {
  if (axes.empty()) return f(a, b, c);
  const nest_axis& x = axes.front();
  for (extent i = 0; i < x.length; ++i)
    each_place(axes.subspan(1), a + i * x.a, b + i * x.b, c + i * x.c, f);
}

// Makes part number `part` of `parts` of the result, or adds to it. Without tokens it is zero. A
// null b counts as 1. At each place of the axes that both operands have, the others are those of a
// product.
template <class T, class Arch>
void token_sum(const token_sum_step& s, token_rows<T> a, token_rows<T> b, T* c, T* scratch,
               extent tokens, extent part, extent parts, bool adds) noexcept {
  loop_axes out(s.out);
  if (parts > 1) {
    const token_sum_cut cut(s);
    nest_axis& x = out[cut.axis];
    const extent from = cut.units * part / parts * cut.unit,
                 to = std::min(x.length, cut.units * (part + 1) / parts * cut.unit);
    x.length = to - from;
    a.data += from * x.a;
    if (b.data != nullptr) b.data += from * x.b;
    c += from * x.c;
  }
  loop_axes of_both, of_one;
  for (extent k = 0; k < out.size(); ++k)
    (out[k].a != 0 && out[k].b != 0 ? of_both : of_one).push(out[k]);
  const auto product = token_product::of(of_one, s.summed, s.block);
  if (product && b.data != nullptr)
    return each_place(of_both, a.data, b.data, c, [&](const T* from_a, const T* from_b, T* to) {
      sum_token_product<T, Arch>(*product, {from_a, a.stride}, {from_b, b.stride}, to, tokens,
                                 s.block, adds, scratch);
    });
  const auto sum_of = [&](extent count) {
    loop_axes summed;
    summed.push({count, a.stride, b.stride, 0});
    for (const nest_axis& x : s.summed) summed.push(x);
    return small_product<T, Arch>(out, summed);
  };
  const auto whole = sum_of(s.block), rest = sum_of(tokens % s.block);
  const auto add_block = [&](const small_product<T, Arch>& sum, extent from) {
    sum(a.data + from * a.stride, b.data == nullptr ? nullptr : b.data + from * b.stride, c,
        from == 0 && !adds ? sum_into::nothing : sum_into::total);
  };
  extent first = 0;
  for (; first + s.block <= tokens; first += s.block) add_block(whole, first);
  if (first < tokens || (tokens == 0 && !adds)) add_block(rest, first);
}

}  // namespace fmoe::cpu
