// SPDX-License-Identifier: MIT
// The norms of what some of Monet's experts contribute to each row. A layer has s^2 experts, which
// no row can list, so the caller names those of interest, such as the experts of a domain.
#pragma once

#include <algorithm>
#include <vector>

#include <fmoe/base/pairs.hpp>
#include <fmoe/layers/monet_expert.hpp>
#include <fmoe/layers/monet_routing.hpp>

namespace fmoe::detail {

// Returns one parameter of every expert: [...] -> [n, ...].
template <class T, std::size_t Rank>
parameter<T, Rank + 1> stacked(const std::vector<monet_expert<T>>& experts,
                               parameter<T, Rank> monet_expert<T>::* member) {
  std::array<extent, Rank + 1> shape{experts.size()};
  std::ranges::copy((experts[0].*member).shape(), shape.begin() + 1);
  tensor<T, Rank + 1> all(shape);
  T* to = detail::elements_to_write(all);
  for (const monet_expert<T>& e : experts)
    to = std::copy_n((e.*member).data(), (e.*member).size(), to);
  return all;
}

// [s, n]: column n takes one half of expert n, or nothing if the expert is deleted.
inline parameter<float, 2> monet_halves_of(const std::vector<index_pair>& experts, extent half,
                                           extent s, const std::vector<index_pair>& deleted) {
  tensor<float, 2> takes({s, experts.size()});
  for (extent n = 0; n < experts.size(); ++n)
    takes(experts[n][half], n) = std::ranges::count(deleted, experts[n]) == 0;
  return takes;
}

// [t, d], [t, p, s], [t, p, s] -> [t, n]: |sum over p of g1[p,i] g2[p,j]| |E_ij(x_t)|_2 of the
// experts n = (i, j) in the list. n (2 m d + 2 p s) multiply-adds a token; the weights of these
// experts are copied. Throws value_error for an empty list and if there is no such expert.
template <class Layer>
auto monet_norms(const Layer& layer, extent s, const operand_of<2> auto& x,
                 const operand_of<3> auto& routing1, const operand_of<3> auto& routing2,
                 const std::vector<index_pair>& experts) {
  using expert = decltype(layer.expert(0, 0));
  const auto g1 = monet_routing("g1", routing1, layer.heads, s);
  const auto g2 = monet_routing("g2", routing2, layer.heads, s);
  expects<value_error>(!experts.empty(), "[contribution_norms] the list of experts is empty");
  std::vector<expert> all;
  for (const auto& [i, j] : experts) all.push_back(layer.expert(i, j));
  const auto hidden =
      apply(layer.activation, einsum<"td,ndm->tnm">(x, stacked(all, &expert::encoder)) +
                                  stacked(all, &expert::encoder_bias));
  const auto y =
      einsum<"tnm,nmo->tno">(hidden, stacked(all, &expert::decoder)) + stacked(all, &expert::bias);
  const auto a = einsum<"tpi,tpj,in,jn->tn">(g1, g2, monet_halves_of(experts, 0, s, layer.deleted),
                                             monet_halves_of(experts, 1, s, layer.deleted));
  return abs(a) * norm(row_norm::l2, y);
}

}  // namespace fmoe::detail
