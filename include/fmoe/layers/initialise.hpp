// SPDX-License-Identifier: MIT
// The weights from which training starts (Oldfield et al. 2024, F.2): at first all experts are
// nearly the same.
#pragma once

#include <cmath>

#include <fmoe/base/random.hpp>
#include <fmoe/layers/mumoe.hpp>

namespace fmoe::detail {

// Returns numbers from U[-sqrt(k), sqrt(k)], where k is 1 / `contracted`, the length of the sum in
// which the products of the factor end.
template <class T, std::size_t Rank>
parameter<T, Rank> initial_factor(const std::array<extent, Rank>& shape, extent contracted,
                                  random_stream& random) {
  parameter<T, Rank> f(shape);
  const double bound = std::sqrt(1 / static_cast<double>(contracted));
  T* const to = elements_to_write(f);
  for (extent i = 0; i < f.size(); ++i) to[i] = convert<T>(random.uniform() * bound);
  return f;
}

// Returns one entry of a factor of experts: from N(1, 1) in the first level, 1 in the other levels.
inline double initial_weight(extent level, random_stream& random) {
  return level == 0 ? 1 + random.normal() : 1;
}

}  // namespace fmoe::detail

namespace fmoe {

// The sizes of a muMoE layer: the experts of each level, the inputs and outputs of an expert.
template <std::size_t Levels>
struct expert_sizes {
  std::array<std::size_t, Levels> experts;
  std::size_t inputs, outputs;
  bool bias = true;  // one more input row
};

// A gate of zeros, which gives every expert the same coefficient.
template <class T = float, std::size_t Levels>
expert_gate<Levels, T> initial_gate(const expert_sizes<Levels>& s) {
  expert_gate<Levels, T> g;
  for (std::size_t e = 0; e < Levels; ++e)
    g.projections[e] = parameter<T, 2>({s.inputs, s.experts[e]});
  return g;
}

// Draws the factors one after the other, each in row-major order. k is 1 / I, also if a bias makes
// I + 1 rows.
template <class T = float, std::size_t Levels>
cp_experts<Levels, T> initial_cp(const expert_sizes<Levels>& s, std::size_t rank,
                                 random_stream& random) {
  cp_experts<Levels, T> e;
  for (std::size_t level = 0; level < Levels; ++level) {
    auto& u = e.experts[level] = parameter<T, 2>({s.experts[level], rank});
    T* const to = detail::elements_to_write(u);
    for (std::size_t i = 0; i < u.size(); ++i)
      to[i] = detail::convert<T>(detail::initial_weight(level, random));
  }
  e.input = detail::initial_factor<T, 2>({s.inputs + s.bias, rank}, s.inputs, random);
  e.output = detail::initial_factor<T, 2>({s.outputs, rank}, rank, random);
  return e;
}

// The same for a tensor ring: the slice of each expert is a diagonal.
template <class T = float, std::size_t Levels>
tr_experts<Levels, T> initial_tr(const expert_sizes<Levels>& s,
                                 const std::array<std::size_t, Levels + 2>& ranks,
                                 random_stream& random) {
  tr_experts<Levels, T> e;
  for (std::size_t level = 0; level < Levels; ++level) {
    auto& u = e.experts[level] =
        parameter<T, 3>({ranks[level], s.experts[level], ranks[level + 1]});
    T* const to = detail::elements_to_write(u);
    for (std::size_t n = 0; n < s.experts[level]; ++n)
      for (std::size_t p = 0; p < std::min(ranks[level], ranks[level + 1]); ++p)
        to[(p * s.experts[level] + n) * ranks[level + 1] + p] =
            detail::convert<T>(detail::initial_weight(level, random));
  }
  const std::size_t before = ranks[Levels], between = ranks[Levels + 1];
  e.input = detail::initial_factor<T, 3>({before, s.inputs + s.bias, between}, s.inputs, random);
  e.output =
      detail::initial_factor<T, 3>({between, s.outputs, ranks[0]}, between * ranks[0], random);
  return e;
}

}  // namespace fmoe
