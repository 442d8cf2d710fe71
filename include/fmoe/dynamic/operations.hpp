// SPDX-License-Identifier: MIT
// The operations on dynamic expressions. Each is that of the same name on typed expressions, and
// throws where a typed one does not compile.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmoe/dynamic/expression.hpp>
#include <fmoe/gradients/differentiate.hpp>

namespace fmoe::detail {

inline dtype joint_type(const std::vector<dynamic::expression>& operands) {
  const bool is_double =
      std::ranges::any_of(operands, [](const auto& e) { return e.type() == dtype::float64; });
  return is_double ? dtype::float64 : dtype::float32;
}

inline ir::node_list lowered_operands(const std::vector<dynamic::expression>& operands,
                                      ir::graph& g) {
  std::vector<ir::node_id> ids;
  for (const dynamic::expression& e : operands) ids.push_back(e.lower(g));
  return ir::node_list(std::move(ids));
}

// An expression of one operand; f(graph, node) adds its node.
template <class F>
dynamic::expression of_one(const dynamic::expression& e, extent rank, F f) {
  return {rank, e.type(), [=](ir::graph& g) { return f(g, e.lower(g)); }};
}
// The same of two operands.
template <class F>
dynamic::expression of_two(const dynamic::expression& a, const dynamic::expression& b, F f) {
  return {std::max(a.rank(), b.rank()), joint_type({a, b}), [=](ir::graph& g) {
            const ir::node_id left = a.lower(g);
            return f(g, left, b.lower(g));
          }};
}

inline void expects_last_axis(const char* what, const dynamic::expression& e) {
  expects<shape_error>(e.rank() >= 1, "[", what, "] the operand has a last axis");
}

}  // namespace fmoe::detail

namespace fmoe::dynamic {

// See fmoe::einsum. Throws value_error for subscripts that are not well formed, and shape_error for
// an operand of another rank than its subscripts.
inline expression einsum(const std::string& subscripts, const std::vector<expression>& operands) {
  using detail::expects;
  expects<value_error>(!detail::has(subscripts, '.'), "[einsum] \"", subscripts,
                       "\": write a letter for each axis instead of \"...\"");
  std::string full;
  detail::in_full(subscripts, [&](char c) { full += c; });
  expects<value_error>(
      detail::is_well_formed(full), "[einsum] \"", subscripts,
      "\": subscripts are letters, a comma between operands and at most one arrow, "
      "as in \"ti,io->to\"");
  expects<value_error>(detail::result_is_bound(full), "[einsum] \"", subscripts,
                       "\": each label of the result comes once, and from an operand");
  const std::size_t count = detail::operand_count(full);
  expects<value_error>(count == operands.size(), "[einsum] \"", subscripts, "\" names ", count,
                       " operands and there are ", operands.size());
  for (std::size_t i = 0; i < count; ++i)
    expects<shape_error>(detail::operand_labels(full, i).size() == operands[i].rank(),
                         "[einsum] operand ", i, " of \"", subscripts, "\" has ",
                         operands[i].rank(), " axes, and '", detail::operand_labels(full, i),
                         "' are ", detail::operand_labels(full, i).size());
  return {detail::result_labels(full).size(), detail::joint_type(operands), [=](ir::graph& g) {
            const auto ids = detail::lowered_operands(operands, g);
            return g.einsum(full, {ids.begin(), ids.end()});
          }};
}

// Functions of every element; `parameter` as for fmoe::apply.
inline expression apply(pointwise fn, const expression& e, double parameter = 0) {
  return detail::of_one(e, e.rank(),
                        [=](ir::graph& g, ir::node_id x) { return g.map(fn, parameter, x); });
}

// Element by element, with the operand of fewer axes repeated along the leading axes of the other.
inline expression add(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.add(x, y); });
}
inline expression subtract(const expression& a, const expression& b) {
  return add(a, apply(pointwise::negate, b));
}
inline expression multiply(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.multiply(x, y); });
}
inline expression divide(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.divide(x, y); });
}
inline expression max(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.max(x, y); });
}
inline expression min(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.min(x, y); });
}

// a where the condition is above 0, else b. Throws shape_error if the condition has more axes.
inline expression where(const expression& condition, const expression& a, const expression& b) {
  detail::expects<shape_error>(condition.rank() <= std::min(a.rank(), b.rank()),
                               "[where] the condition has no more axes than the two values");
  return {std::max(a.rank(), b.rank()), detail::joint_type({condition, a, b}), [=](ir::graph& g) {
            const ir::node_id c = condition.lower(g), yes = a.lower(g);
            return g.where(c, yes, b.lower(g));
          }};
}

// Functions of every row; `parameter` is the alpha of entmax and the epsilon of norms.
inline expression map_rows(row_function fn, const expression& e, double parameter = 0) {
  detail::expects_last_axis(name_of(fn), e);
  detail::expects<value_error>(fn != row_function::bounded_softmax,
                               "[bounded softmax] takes a bound: see bounded_softmax");
  if (fn == row_function::entmax && parameter == 1) fn = row_function::softmax;
  return detail::of_one(e, e.rank(),
                        [=](ir::graph& g, ir::node_id x) { return g.map_rows(fn, parameter, x); });
}
inline expression best_groups(const expression& scores, std::size_t groups, std::size_t active,
                              group_score score = group_score::sum_of_two) {
  detail::expects_last_axis("best_groups", scores);
  return detail::of_one(scores, scores.rank(), [=](ir::graph& g, ir::node_id x) {
    return g.best_groups(x, {groups, score}, active);
  });
}
inline expression bounded_softmax(const expression& scores, const expression& bound) {
  detail::expects<shape_error>(bound.rank() < scores.rank(),
                               "[bounded softmax] the bound has one number for each row");
  return detail::of_two(scores, bound, [](ir::graph& g, ir::node_id x, ir::node_id b) {
    return g.map_rows(row_function::bounded_softmax, 0, x, b);
  });
}

// One number of every row: [..., n] -> [...].
inline expression norm(row_norm which, const expression& e) {
  detail::expects_last_axis(name_of(which), e);
  return detail::of_one(e, e.rank() - 1,
                        [=](ir::graph& g, ir::node_id x) { return g.norm(which, x); });
}

// Selections along the last axis: see fmoe::top_k and its like.
inline expression top_k(const expression& scores, std::size_t k,
                        weighting weights = weighting::score) {
  detail::expects_last_axis("top_k", scores);
  const detail::selection_rule rule{detail::selection_rule::kind::top_k, k, 0, weights};
  if (rule == detail::selection_rule{rule.what, all}) return scores;
  return detail::of_one(scores, scores.rank(),
                        [=](ir::graph& g, ir::node_id x) { return g.select(rule, x); });
}
inline expression top_k(const expression& scores, const expression& ranked, std::size_t k,
                        weighting weights = weighting::score) {
  detail::expects_last_axis("top_k", scores);
  detail::expects<shape_error>(scores.rank() == ranked.rank(),
                               "[top_k] scores and what ranks them have the same axes");
  const detail::selection_rule rule{detail::selection_rule::kind::top_k, k, 0, weights};
  return detail::of_two(scores, ranked, [=](ir::graph& g, ir::node_id x, ir::node_id r) {
    return g.select(rule, x, r);
  });
}
inline expression top_p(const expression& scores, double mass, weighting weights) {
  detail::expects_last_axis("top_p", scores);
  const detail::selection_rule rule{detail::selection_rule::kind::top_p, 0, mass, weights};
  return detail::of_one(scores, scores.rank(),
                        [=](ir::graph& g, ir::node_id x) { return g.select(rule, x); });
}
inline expression nonzeros(const expression& scores) {
  detail::expects_last_axis("nonzeros", scores);
  const detail::selection_rule rule{detail::selection_rule::kind::nonzero};
  return detail::of_one(scores, scores.rank(),
                        [=](ir::graph& g, ir::node_id x) { return g.select(rule, x); });
}
inline expression expert_choice(const expression& scores, const expression& ranked,
                                weighting weights, std::size_t capacity = all, double factor = 2) {
  detail::expects<shape_error>(scores.rank() == 2 && ranked.rank() == 2,
                               "[expert_choice] scores and ranking are [token, expert]");
  const detail::selection_rule rule{detail::selection_rule::kind::expert_choice, capacity, 0,
                                    weights, factor};
  return detail::of_two(scores, ranked, [=](ir::graph& g, ir::node_id x, ir::node_id r) {
    return g.select(rule, x, r);
  });
}
inline expression product_top_k(const expression& scores, std::size_t k, std::size_t each,
                                weighting weights = weighting::softmax) {
  detail::expects<shape_error>(scores.rank() >= 3,
                               "[product_top_k] the scores are [token, ..., 2, s]");
  const detail::selection_rule rule{
      detail::selection_rule::kind::product_top_k, k, 0, weights, 0, each};
  return detail::of_one(scores, scores.rank() - 1,
                        [=](ir::graph& g, ir::node_id x) { return g.select(rule, x); });
}

// The values, or the indices, of the entries that a selection keeps: [..., n] -> [..., K].
inline expression kept_values(const expression& selection) {
  detail::expects_last_axis("kept", selection);
  return detail::of_one(selection, selection.rank(), [](ir::graph& g, ir::node_id x) {
    return g.kept(detail::kept_part::value, x);
  });
}
inline expression kept_indices(const expression& selection) {
  detail::expects_last_axis("kept", selection);
  return detail::of_one(selection, selection.rank(), [](ir::graph& g, ir::node_id x) {
    return g.kept(detail::kept_part::index, x);
  });
}

// Joins expressions along an axis. Throws shape_error unless all have the same number of axes, and
// that one.
inline expression concat(const std::vector<expression>& parts, std::size_t axis) {
  detail::expects<value_error>(!parts.empty(), "[concat] there is no operand");
  for (const expression& e : parts)
    detail::expects<shape_error>(e.rank() == parts[0].rank() && axis < e.rank(),
                                 "[concat] all operands have the same number of axes, above ",
                                 axis);
  return {parts[0].rank(), detail::joint_type(parts), [=](ir::graph& g) {
            const auto ids = detail::lowered_operands(parts, g);
            return g.concat({ids.begin(), ids.end()}, axis);
          }};
}
inline expression append_one(const expression& e) {
  detail::expects_last_axis("append_one", e);
  return detail::of_one(e, e.rank(), [](ir::graph& g, ir::node_id x) { return g.append_one(x); });
}

// States extents that nothing else tells; `all` may be any.
inline expression sized(const expression& e, const std::vector<std::size_t>& shape) {
  detail::expects<shape_error>(shape.size() == e.rank(), "[sized] the expression has ", e.rank(),
                               " axes and is said to have ", shape.size());
  return detail::of_one(e, e.rank(), [=](ir::graph& g, ir::node_id x) {
    for (std::size_t k = 0; k < shape.size(); ++k)
      detail::expects<shape_error>(g.fix(x, k, shape[k]), "[sized] axis ", k, " is ",
                                   g.extent_of(g[x].axes[k]), " and is said to be ", shape[k]);
    return x;
  });
}

// The gradient of sum(y dy) with respect to a part of y: see fmoe::gradient.
inline expression gradient(const expression& y, const expression& of, const expression& dy) {
  detail::expects<shape_error>(y.rank() == dy.rank(), "[gradient] dy has ", dy.rank(),
                               " axes and y ", y.rank());
  return {of.rank(), detail::joint_type({y, dy}), [=](ir::graph& g) {
            const ir::node_id root = y.lower(g), part = of.lower(g), seed = dy.lower(g);
            g.fix_arguments();  // the order of products depends on the number of tokens
            return detail::gradient_of_part(g, root, seed, part);
          }};
}

}  // namespace fmoe::dynamic
