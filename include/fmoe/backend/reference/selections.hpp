// SPDX-License-Identifier: MIT
// Selections in double, as dense rows: 0 where an entry is not kept.
#pragma once

#include <fmoe/backend/reference/functions.hpp>

namespace fmoe::reference_backend {

// Turns a row of scores into the selection that keeps these places.
inline void keep(row scores, const vector<extent>& places, weighting weights) {
  vector<double> of_all(scores.begin(), scores.end()), kept;
  for (const extent k : places) kept.push_back(scores[k]);
  if (weights == weighting::softmax) softmax(kept);
  if (weights == weighting::softmax_of_all) softmax(of_all);
  if (weights == weighting::normalized)
    if (const double sum = std::accumulate(kept.begin(), kept.end(), 0.0); sum != 0)
      for (double& k : kept) k /= sum;
  std::ranges::fill(scores, 0);
  for (extent i = 0; i < places.size(); ++i) {
    const extent k = places[i];
    switch (weights) {
      case weighting::score:
      case weighting::softmax:
      case weighting::normalized: scores[k] = kept[i]; break;
      case weighting::softmax_of_all: scores[k] = of_all[k]; break;
      case weighting::one: scores[k] = 1; break;
      case weighting::relu: scores[k] = std::max(kept[i], 0.0); break;
    }
  }
}

inline void top_k(row scores, const_row ranked, extent count, weighting weights) {
  auto places = best_first(ranked);
  places.resize(std::min(count, scores.size()));
  keep(scores, places, weights);
}

// Keeps the fewest of the best entries whose softmax over the whole row sums to `mass` or more, but
// at least one.
inline void top_p(row scores, double mass, weighting weights) {
  vector<double> probabilities(scores.begin(), scores.end());
  softmax(probabilities);
  auto places = best_first(scores);
  double sum = 0;
  extent count = 0;
  const auto needs_more = [&] { return count == 0 || sum < mass; };
  while (count < places.size() && needs_more()) sum += probabilities[places[count++]];
  places.resize(count);
  keep(scores, places, weights);
}

// Keeps `rule.keep` of the sums of the `rule.each` best entries of two lists of n: entry i n + j of
// the result is a[i] + b[j].
inline void product_top_k(const selection_rule& rule, const_row a, const_row b, row result) {
  auto first = best_first(a), second = best_first(b);
  first.resize(rule.each);
  second.resize(rule.each);
  std::ranges::sort(first);
  std::ranges::sort(second);
  vector<double> sums;
  for (const extent i : first)
    for (const extent j : second) sums.push_back(a[i] + b[j]);
  reference_backend::top_k(sums, sums, rule.keep, rule.weights);  // not the one of expressions
  std::ranges::fill(result, 0);
  for (extent k = 0; k < sums.size(); ++k)
    result[first[k / rule.each] * b.size() + second[k % rule.each]] = sums[k];
}

// The row with these values at these places; -1 is no place.
inline void entries(const_row values, const_row places, row result) {
  std::ranges::fill(result, 0);
  for (extent k = 0; k < places.size(); ++k)
    if (places[k] >= 0) result[static_cast<extent>(places[k])] = values[k];
}

// Each expert, a column of `experts`, keeps its best tokens by `ranked`; each token weights the
// experts that keep it.
inline void expert_choice(const selection_rule& rule, extent experts, const_row ranked,
                          row scores) {
  const extent tokens = experts == 0 ? 0 : scores.size() / experts;
  const extent capacity = capacity_of(rule, tokens, experts);
  vector<vector<extent>> kept(tokens);
  for (extent e = 0; e < experts; ++e) {
    vector<double> column;
    for (extent t = 0; t < tokens; ++t) column.push_back(ranked[t * experts + e]);
    const auto order = best_first(column);
    for (extent k = 0; k < capacity; ++k) kept[order[k]].push_back(e);
  }
  for (extent t = 0; t < tokens; ++t)
    keep(scores.subspan(t * experts, experts), kept[t], rule.weights);
}

}  // namespace fmoe::reference_backend
