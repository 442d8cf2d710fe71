// SPDX-License-Identifier: MIT
// Reads a stream for an analysis, in batches [token, expert] of any library's arrays. The experts
// are cut into blocks, and each block has one owner that reads the tokens in order, so neither the
// threads nor the split of the stream can change a bit.
#pragma once

#include <algorithm>
#include <cstring>

#include <fmoe/arrays/interop.hpp>
#include <fmoe/backend/cpu/parallel.hpp>
#include <fmoe/base/compiler.hpp>

namespace fmoe::detail {

template <class T>
struct token_batch {
  const T* data;
  extent tokens, token_step, expert_step;  // in elements

  double operator()(extent t, extent n) const {
    return convert<double>(data[t * token_step + n * expert_step]);
  }

  // `to` becomes the coefficients of experts n, n + 1, ..., as a vector.
  template <class Doubles>
  void read(extent t, extent n, Doubles& to) const {
    constexpr extent lanes = sizeof(Doubles) / sizeof(double);
    if constexpr (std::is_floating_point_v<T>) {
      if (expert_step == 1) {
        using numbers = detail::vector_of<T, lanes>;
        numbers from;
        std::memcpy(&from, data + t * token_step + n, sizeof from);
        to = FMOE_CONVERTED(from, Doubles);
        return;
      }
    }
    for (extent l = 0; l < lanes; ++l) to[l] = (*this)(t, n + l);
  }
};

// Calls f with `a`, an array [t, experts] of floating-point numbers, as a token_batch. Throws
// shape_error for another shape.
template <class A>
void with_batch(const A& a, extent experts, const auto& f) {
  constexpr bool readable = readable_array<const A>;
  static_assert(
      readable,
      "a batch is an array [token, expert] of floating-point numbers; for an expression pass "
      "evaluate(expression)");
  if constexpr (readable) {
    const auto& elements = in_memory(a);
    const array_view v = host_view_of(elements);
    expects<shape_error>(v.rank == 2,
                         "[token_batch] a batch has the axes token and expert, and this one has ",
                         v.rank);
    expects<shape_error>(v.shape[1] == experts, "[token_batch] the batch is [", v.shape[0], ", ",
                         v.shape[1], "] and there are ", experts, " experts");
    using element = std::remove_const_t<element_of<const A>>;
    f(token_batch<element>{static_cast<const element*>(v.data), v.shape[0], v.strides[0],
                           v.strides[1]});
  }
}

// Calls f(first, end) for blocks of experts, in parallel. The few accumulators of each of 256
// experts stay in L1, and their part of a row is whole cache lines.
void for_expert_blocks(extent experts, const auto& f) {
  constexpr extent block = 256;
  cpu::parallel(divide_up(experts, block),
                [&](extent b) { f(b * block, std::min(experts, (b + 1) * block)); });
}

}  // namespace fmoe::detail
