// SPDX-License-Identifier: MIT
// MoV, a mixture of vectors (Zadouri et al. 2024).
#pragma once

#include <fmoe/layers/expert_slice.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe {

// MoV, a mixture of vectors (Zadouri et al. 2024): W_n = diag(c_n) D, so y = ((a C) * z) D. This is
// the other unfolding of MxD's weights. Label: h hidden unit.
template <class T = float>
struct mov {
  parameter<T, 2> scales;   // n h, row n is c_n
  parameter<T, 2> decoder;  // h o

  // [t, h], [t, n] -> [t, o]: the caller passes z and a.
  auto operator()(const operand_of<2> auto& hidden, const operand_of<2> auto& coefficients) const {
    return einsum<"tn,nh,th,ho->to">(coefficients, scales, hidden, decoder);
  }
  template <class... Xs>
  detail::refused operator()(const Xs&...) const {
    static_assert(
        detail::never<Xs...>,
        "mov takes two operands, [token, hidden unit] and the coefficients [token, expert]");
    return {};
  }

  // Returns W_n = diag(c_n) D [h, o]. Throws value_error if there is no such expert.
  auto expert(std::size_t n) const {
    return einsum<"h,ho->ho">(detail::expert_slice<0>(scales, n), decoder);
  }
};

}  // namespace fmoe
