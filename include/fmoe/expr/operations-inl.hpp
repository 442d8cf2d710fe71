// SPDX-License-Identifier: MIT
// What operations.hpp declares.
#pragma once

#include <algorithm>
#include <string>

#include <fmoe/expr/operations.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

// An expression that is added by a function of a graph and of the operands' nodes.
template <class F>
dynamic::expression made_of(vector<dynamic::expression> operands, extent rank, F f) {
  struct made final : expression_node {
    made(vector<dynamic::expression> args, extent r, F function)
        : expression_node(r, std::move(args)),
          f(std::move(function)) {}
    ir::node_id lower(ir::graph& g, std::span<const ir::node_id> args) const override {
      return f(g, args);
    }

    F f;
  };
  return expression_of(new made(std::move(operands), rank, std::move(f)));
}

// The same of two operands, with the axes of the one that has more.
template <class F>
dynamic::expression of_two(const dynamic::expression& a, const dynamic::expression& b, F f) {
  return made_of(
      {a, b}, std::max(a.rank(), b.rank()),
      [f](ir::graph& g, std::span<const ir::node_id> args) { return f(g, args[0], args[1]); });
}

inline vector<dynamic::expression> copies_of(std::initializer_list<listed_operand> operands) {
  vector<dynamic::expression> all_of_them;
  for (const listed_operand e : operands) all_of_them.push_back(*e);
  return all_of_them;
}

inline void expects_last_axis(const char* what, const dynamic::expression& e) {
  expects<shape_error>(e.rank() >= 1, "[", what, "] the operand has a last axis");
}

inline dynamic::expression einsum_of(std::string full, vector<dynamic::expression> args) {
  struct made final : expression_node {
    made(std::string s, vector<dynamic::expression> es)
        : expression_node(result_labels(s).size(), std::move(es)),
          subscripts(std::move(s)) {}
    // The subscripts tell which parameter it is.
    void expects_operands() const override {
      for (extent i = 0; i < operands.size(); ++i)
        expects<value_error>(!operands[i].holds_nothing(), "[einsum] the operand \"",
                             operand_labels(subscripts, i), "\" of \"", subscripts,
                             "\" holds nothing: set or load the parameter");
    }
    ir::node_id lower(ir::graph& g, std::span<const ir::node_id> nodes) const override {
      return g.einsum(subscripts, {nodes.begin(), nodes.end()});
    }

    std::string subscripts;
  };
  return expression_of(new made(std::move(full), std::move(args)));
}

inline dynamic::expression concat_of(vector<dynamic::expression> parts, extent axis) {
  const extent rank = parts[0].rank();
  return made_of(std::move(parts), rank, [axis](ir::graph& g, std::span<const ir::node_id> args) {
    return g.concat({args.begin(), args.end()}, axis);
  });
}

inline dynamic::expression selected(const selection_rule& rule, const dynamic::expression& scores,
                                    extent rank) {
  return expression_of(scores, rank,
                       [rule](ir::graph& g, ir::node_id x) { return g.select(rule, x); });
}

// Scores that rank themselves are a selection without a ranking.
inline dynamic::expression selected(const selection_rule& rule, const dynamic::expression& scores,
                                    const dynamic::expression& ranked) {
  return of_two(scores, ranked, [rule](ir::graph& g, ir::node_id x, ir::node_id by) {
    const bool is_itself = rule.what == selection_rule::kind::top_k && x == by;
    return is_itself ? g.select(rule, x) : g.select(rule, x, by);
  });
}

inline selection_rule top_k_rule(extent k, weighting weights) {
  return {selection_rule::kind::top_k, k, 0, weights};
}
inline bool keeps_all(const selection_rule& rule) { return rule == selection_rule{rule.what, all}; }

inline dynamic::expression kept_part_of(kept_part part, const dynamic::expression& selection) {
  expects_last_axis("kept", selection);
  return expression_of(selection, selection.rank(),
                       [part](ir::graph& g, ir::node_id x) { return g.kept(part, x); });
}

FMOE_INLINE dynamic::expression contraction(std::string_view full,
                                            std::initializer_list<listed_operand> operands) {
  return einsum_of(std::string(full), copies_of(operands));
}

FMOE_INLINE dynamic::expression concatenation(std::initializer_list<listed_operand> parts,
                                              extent axis) {
  return concat_of(copies_of(parts), axis);
}

FMOE_INLINE dynamic::expression apply(std::shared_ptr<const own_function> fn,
                                      const dynamic::expression& e) {
  return expression_of(e, e.rank(), [own = std::move(fn)](ir::graph& g, ir::node_id x) {
    return g.map({.own = own}, x);
  });
}

FMOE_INLINE dynamic::expression drop(const dynamic::expression& e,
                                     const dynamic::expression& where) {
  return of_two(e, where, [](ir::graph& g, ir::node_id x, ir::node_id w) { return g.drop(x, w); });
}

FMOE_INLINE dynamic::expression above(const dynamic::expression& e,
                                      const dynamic::expression& bound) {
  return of_two(e, bound, [](ir::graph& g, ir::node_id x, ir::node_id b) {
    return g.join(pass_kind::above, x, b);
  });
}

}  // namespace fmoe::detail

namespace fmoe::dynamic {

FMOE_INLINE expression constant(const tensor& t, bool is_parameter) {
  detail::expects<value_error>(!t.empty(), "[constant] a tensor of rank ", t.shape.size(),
                               " holds nothing: set or load it");
  using detail::leaf_role;
  return detail::leaf(t.elements, t.type, t.shape, t.axis,
                      is_parameter ? leaf_role::parameter : leaf_role::tensor);
}

FMOE_INLINE expression input(std::size_t index, std::size_t rank) {
  detail::expects<shape_error>(rank >= 1, "[input] an input has a leading token axis");
  return detail::input(index, rank, all);
}

FMOE_INLINE expression einsum(const std::string& subscripts,
                              const std::vector<expression>& operands) {
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
  for (std::size_t i = 0; i < count; ++i) {
    const auto labels = detail::operand_labels(full, i);
    expects<shape_error>(labels.size() == operands[i].rank(), "[einsum] operand ", i, " of \"",
                         subscripts, "\" has ", operands[i].rank(), " axes, and '", labels,
                         "' are ", labels.size());
  }
  return detail::einsum_of(std::move(full), {operands.begin(), operands.end()});
}

FMOE_INLINE expression apply(pointwise fn, const expression& e, double parameter) {
  return detail::expression_of(
      e, e.rank(), [=](ir::graph& g, ir::node_id x) { return g.map(fn, parameter, x); });
}

FMOE_INLINE expression add(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.add(x, y); });
}
FMOE_INLINE expression subtract(const expression& a, const expression& b) {
  return add(a, apply(pointwise::negate, b));
}
FMOE_INLINE expression multiply(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.multiply(x, y); });
}
FMOE_INLINE expression divide(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.divide(x, y); });
}
FMOE_INLINE expression max(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.max(x, y); });
}
FMOE_INLINE expression min(const expression& a, const expression& b) {
  return detail::of_two(a, b, [](auto& g, auto x, auto y) { return g.min(x, y); });
}

FMOE_INLINE expression where(const expression& condition, const expression& a,
                             const expression& b) {
  detail::expects<shape_error>(condition.rank() <= std::min(a.rank(), b.rank()),
                               "[where] the condition has no more axes than the two values");
  return detail::made_of({condition, a, b}, std::max(a.rank(), b.rank()),
                         [](ir::graph& g, std::span<const ir::node_id> args) {
                           return g.where(args[0], args[1], args[2]);
                         });
}

FMOE_INLINE expression map_rows(row_function fn, const expression& e, double parameter) {
  detail::expects_last_axis(name_of(fn), e);
  detail::expects<value_error>(
      fn != row_function::bounded_softmax && fn != row_function::best_groups, "[", name_of(fn),
      "] is a function of its own: it takes more than a number");
  if (fn == row_function::entmax && parameter == 1) fn = row_function::softmax;
  return detail::expression_of(
      e, e.rank(), [=](ir::graph& g, ir::node_id x) { return g.map_rows(fn, parameter, x); });
}
FMOE_INLINE expression best_groups(const expression& scores, std::size_t groups, std::size_t active,
                                   group_score score) {
  detail::expects_last_axis("best_groups", scores);
  return detail::expression_of(scores, scores.rank(), [=](ir::graph& g, ir::node_id x) {
    return g.make(ir::row_function_node{
        row_function::best_groups, static_cast<double>(active), x, {}, {groups, score}});
  });
}
FMOE_INLINE expression bounded_softmax(const expression& scores, const expression& bound) {
  detail::expects<shape_error>(bound.rank() < scores.rank(),
                               "[bounded softmax] the bound has one number for each row");
  return detail::of_two(scores, bound, [](ir::graph& g, ir::node_id x, ir::node_id b) {
    return g.map_rows(row_function::bounded_softmax, 0, x, b);
  });
}

FMOE_INLINE expression norm(row_norm which, const expression& e) {
  detail::expects_last_axis(name_of(which), e);
  return detail::expression_of(e, e.rank() - 1,
                               [=](ir::graph& g, ir::node_id x) { return g.norm(which, x); });
}
FMOE_INLINE expression repeat(const expression& e, std::size_t n) {
  using detail::max_rank;
  detail::expects<shape_error>(e.rank() < max_rank, "[repeat] a result has at most ", max_rank,
                               " axes");
  return detail::expression_of(e, e.rank() + 1,
                               [=](ir::graph& g, ir::node_id x) { return g.repeat(x, n); });
}

FMOE_INLINE expression top_k(const expression& scores, std::size_t k, weighting weights) {
  detail::expects_last_axis("top_k", scores);
  const auto rule = detail::top_k_rule(k, weights);
  if (detail::keeps_all(rule)) return scores;
  return detail::selected(rule, scores, scores.rank());
}
FMOE_INLINE expression top_k(const expression& scores, const expression& ranked, std::size_t k,
                             weighting weights) {
  detail::expects_last_axis("top_k", scores);
  detail::expects<shape_error>(scores.rank() == ranked.rank(),
                               "[top_k] scores and what ranks them have the same axes");
  const auto rule = detail::top_k_rule(k, weights);
  if (detail::keeps_all(rule)) return scores;
  return detail::selected(rule, scores, ranked);
}
FMOE_INLINE expression top_p(const expression& scores, double mass, weighting weights) {
  detail::expects_last_axis("top_p", scores);
  return detail::selected({detail::selection_rule::kind::top_p, 0, mass, weights}, scores,
                          scores.rank());
}
FMOE_INLINE expression nonzeros(const expression& scores) {
  detail::expects_last_axis("nonzeros", scores);
  return detail::selected({detail::selection_rule::kind::nonzero}, scores, scores.rank());
}
FMOE_INLINE expression jump_relu(const expression& scores, const expression& thresholds) {
  detail::expects<shape_error>(thresholds.rank() >= 1 && thresholds.rank() <= scores.rank(),
                               "[jump_relu] the thresholds have the last axes of the scores");
  return nonzeros(detail::above(scores, thresholds));
}
FMOE_INLINE expression expert_choice(const expression& scores, const expression& ranked,
                                     weighting weights, std::size_t capacity, double factor) {
  detail::expects<shape_error>(scores.rank() == 2 && ranked.rank() == 2,
                               "[expert_choice] scores and ranking are [token, expert]");
  return detail::selected(
      {detail::selection_rule::kind::expert_choice, capacity, 0, weights, factor}, scores, ranked);
}
FMOE_INLINE expression product_top_k(const expression& scores, std::size_t k, std::size_t each,
                                     weighting weights) {
  detail::expects<shape_error>(scores.rank() >= 3,
                               "[product_top_k] the scores are [token, ..., 2, s]");
  return detail::selected({detail::selection_rule::kind::product_top_k, k, 0, weights, 0, each},
                          scores, scores.rank() - 1);
}

FMOE_INLINE expression kept_values(const expression& selection) {
  return detail::kept_part_of(detail::kept_part::value, selection);
}
FMOE_INLINE expression kept_indices(const expression& selection) {
  return detail::kept_part_of(detail::kept_part::index, selection);
}

FMOE_INLINE expression concat(const std::vector<expression>& parts, std::size_t axis) {
  detail::expects<value_error>(!parts.empty(), "[concat] there is no operand");
  for (const expression& e : parts)
    detail::expects<shape_error>(e.rank() == parts[0].rank() && axis < e.rank(),
                                 "[concat] all operands have the same number of axes, above ",
                                 axis);
  return detail::concat_of({parts.begin(), parts.end()}, axis);
}
FMOE_INLINE expression append_one(const expression& e) {
  detail::expects_last_axis("append_one", e);
  return detail::expression_of(
      e, e.rank(), [](ir::graph& g, ir::node_id x) { return g.make(ir::append_node{x}); });
}

FMOE_INLINE expression sized(const expression& e, std::span<const std::size_t> shape) {
  using detail::expects;
  expects<shape_error>(shape.size() == e.rank(), "[sized] the expression has ", e.rank(),
                       " axes and is said to have ", shape.size());
  detail::vector<std::size_t> said(shape.begin(), shape.end());
  return detail::expression_of(e, e.rank(), [said = std::move(said)](ir::graph& g, ir::node_id x) {
    for (std::size_t k = 0; k < said.size(); ++k)
      expects<shape_error>(g.fix(x, k, said[k]), "[sized] axis ", k, " is ",
                           g.extent_of(g[x].axes[k]), " and is said to be ", said[k]);
    return x;
  });
}
FMOE_INLINE expression sized(const expression& e, std::initializer_list<std::size_t> shape) {
  return sized(e, std::span<const std::size_t>(shape.begin(), shape.size()));
}

FMOE_INLINE expression all_except(std::span<const index_pair> pairs, std::size_t rows,
                                  std::size_t columns) {
  auto sorted = std::make_shared<std::vector<index_pair>>(pairs.begin(), pairs.end());
  for (const auto& [i, j] : *sorted)
    detail::expects<value_error>(i < rows && j < columns, "[all_except] the pair (", i, ", ", j,
                                 ") is outside ", rows, " x ", columns);
  std::ranges::sort(*sorted);
  sorted->erase(std::unique(sorted->begin(), sorted->end()), sorted->end());
  return detail::made_of({}, 2,
                         [=, left_out = detail::pair_set(std::move(sorted))](ir::graph& g, auto) {
                           return g.make(ir::mask_node{left_out, rows, columns});
                         });
}

}  // namespace fmoe::dynamic
