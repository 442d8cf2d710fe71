// SPDX-License-Identifier: MIT
// einsum: the cotangent of an operand is the einsum of the result's cotangent and of the other
// operands, with the labels of the operand.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/gradients/cotangents.hpp>

namespace fmoe::reverse {

// An einsum that is put together operand by operand.
class einsum_parts {
 public:
  void add(node_id id, std::string labels) {
    labels_ += labels;
    text_ += (args_.empty() ? "" : ",") + std::move(labels);
    args_.push_back(id);
  }
  bool has_label(char c) const { return has(labels_, c); }
  // Returns a letter that no operand has, and none of `others`.
  char free_letter(const std::string& others) const {
    char c = 'A';
    while (has_label(c) || has(others, c)) ++c;
    return c;
  }
  node_id make(ir::graph& g, const std::string& result) const {
    return g.einsum(text_ + "->" + result, args_);
  }

 private:
  std::string labels_, text_;
  vector<node_id> args_;
};

// 1 for each number of x; NaN stays. Unlike a constant it has the token axis of x.
inline node_id ones_like(ir::graph& g, node_id x) {
  return g.map(pointwise::at_most, 1, g.map(pointwise::at_least, 1, x));
}

// A mask as a dense matrix of 0 and 1, because a sum over tokens takes no sparse one.
inline node_id dense_mask(ir::graph& g, const ir::mask_node& m) {
  vector<float> numbers(m.rows * m.columns, 1);
  for (const auto& [i, j] : *m.left_out) numbers[i * m.columns + j] = 0;
  return constant(g, {m.rows, m.columns}, [&](extent at) { return numbers[at]; });
}

inline node_id cotangent_of_operand(ir::graph& g, const ir::einsum_node& e, extent operand,
                                    node_id c) {
  einsum_parts sum;
  sum.add(c, std::string(result_labels(e.subscripts)));
  for (extent j = 0; j < e.args.size(); ++j) {
    if (j == operand) continue;
    const auto mask = g[e.args[j]].op;
    const auto* m = get_if<ir::mask_node>(&mask);
    sum.add(m != nullptr ? dense_mask(g, *m) : e.args[j],
            std::string(operand_labels(e.subscripts, j)));
  }
  const node_id x = e.args[operand];
  const std::string own(operand_labels(e.subscripts, operand));
  std::string result;
  for (extent k = 0; k < own.size(); ++k) {
    const bool is_repeated = has(result, own[k]);
    const extent n = g.shape(x)[k];
    if (is_repeated) {  // a diagonal: the other places have the cotangent 0
      result += sum.free_letter(own + result);
      sum.add(constant(g, {n, n}, [n](extent at) { return at / n == at % n ? 1.f : 0.f; }),
              std::string{own[k], result.back()});
      continue;
    }
    result += own[k];
    if (sum.has_label(own[k])) continue;
    const bool may_be_token = k == 0;  // of a label that only this operand has
    if (may_be_token) sum.add(ones_like(g, x), own);
    else sum.add(ones(g, n), std::string(1, own[k]));
  }
  return sum.make(g, result);
}

inline void pull(cotangents& to, const ir::einsum_node& e, node_id, node_id c) {
  for (extent k = 0; k < e.args.size(); ++k)
    if (to.needs(e.args[k])) to.give(e.args[k], cotangent_of_operand(to.g, e, k, c));
}

}  // namespace fmoe::reverse
