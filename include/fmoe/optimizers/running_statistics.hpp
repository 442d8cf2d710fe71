// SPDX-License-Identifier: MIT
// The running statistics of batch norms: a part of a step of training that no gradient drives.
#pragma once

#include <tuple>
#include <utility>

#include <fmoe/layers/expert_gate.hpp>
#include <fmoe/layers/monet.hpp>
#include <fmoe/run/compile.hpp>

namespace fmoe::detail {

template <extent Levels, class T, class X>
auto statistics_of(const expert_gate<Levels, T>& gate, const X& x) {
  return [&]<extent... Level>(std::index_sequence<Level...>) {
    return std::tuple_cat(gate.template batch_statistics<Level>(x)...);
  }(std::make_index_sequence<Levels>());
}
template <class T, class X>
auto statistics_of(const monet_router<T>& router, const X& x) {
  return router.batch_statistics(x);
}

// How many numbers each variance is taken of, for so many tokens.
template <extent Levels, class T>
extent numbers_of(const expert_gate<Levels, T>&, extent tokens) {
  return tokens;
}
template <class T>
extent numbers_of(const monet_router<T>& router, extent tokens) {
  return tokens * (router.keys1.shape()[1] / router.mean1.size());
}

// Returns false if there are no tokens, which move no statistics. Throws value_error for a single
// number, of which no variance can be taken.
inline bool moves_statistics(extent numbers) {
  expects<value_error>(numbers != 1,
                       "[update_statistics] a variance is taken of 1 number, and at least 2 are "
                       "needed: pass more tokens, or leave a batch of one token out of training");
  return numbers > 0;
}

// Where the statistics are kept, in the order of statistics_of.
template <extent Levels, class T>
std::vector<parameter<T, 1>*> kept_statistics(expert_gate<Levels, T>& gate) {
  std::vector<parameter<T, 1>*> kept;
  for (extent e = 0; e < Levels; ++e) kept.insert(kept.end(), {&gate.means[e], &gate.variances[e]});
  return kept;
}
template <class T>
std::vector<parameter<T, 1>*> kept_statistics(monet_router<T>& router) {
  return {&router.mean1, &router.variance1, &router.mean2, &router.variance2};
}

}  // namespace fmoe::detail

namespace fmoe {

// Moves the running statistics of the gate of a muMoE, or of Monet's router, towards those of the
// tokens x [t, i], as torch.nn.BatchNorm1d does in training: running = (1 - momentum) running +
// momentum batch, where the variance has the divisor n - 1. The authors of muMoE and of Monet leave
// the momentum at PyTorch's 0.1. It belongs before the optimizer's step, so that the statistics are
// those of the weights of the forward pass. No tokens change nothing, as in PyTorch. Throws
// value_error if the gate has no running statistics, for a momentum outside [0, 1], and for a
// single token of a muMoE, which has no variance; then nothing has changed.
//
//   expert_gate<1> gate{.projections = {w}};
//   gate.means = {tensor<float, 1>({w.shape()[1]})};
//   gate.variances = {tensor<float, 1>({w.shape()[1]})};
//   update_statistics(gate, x);
template <class Gate, class X>
  requires requires(Gate& gate) { detail::kept_statistics(gate); }
void update_statistics(Gate& gate, const X& x, double momentum = 0.1) {
  const auto kept = detail::kept_statistics(gate);
  for (const auto* statistic : kept)
    detail::expects<value_error>(!statistic->empty(),
                                 "[update_statistics] the gate has no running statistics");
  detail::expects<value_error>(momentum >= 0 && momentum <= 1,
                               "[update_statistics] the momentum is ", momentum,
                               " and must be from 0 to 1");
  const auto rows = detail::lowered_for<cpu::native>(as_expression(x));
  if (!detail::moves_statistics(detail::numbers_of(gate, rows.shape(0)[0]))) return;
  const auto batch = evaluate(detail::statistics_of(gate, x));
  std::size_t number = 0;
  const auto move = [&](const auto& now) {
    auto& running = *kept[number++];
    using T = typename std::remove_cvref_t<decltype(running)>::value_type;
    T* const to = detail::elements_to_write(running);
    for (std::size_t i = 0; i < running.size(); ++i)
      to[i] = detail::convert<T>((1 - momentum) * detail::convert<double>(to[i]) +
                                 momentum * detail::convert<double>(now.data()[i]));
  };
  std::apply([&](const auto&... now) { (move(now), ...); }, batch);
}

}  // namespace fmoe
