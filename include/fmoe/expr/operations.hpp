// SPDX-License-Identifier: MIT
// The operations on expressions of any rank and type. Those of the same name on typed expressions
// call these; where a typed one does not compile, these throw. They lie behind a wall.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmoe/arrays/any_tensor.hpp>
#include <fmoe/base/functions.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/pairs.hpp>
#include <fmoe/expr/expression.hpp>

namespace fmoe::dynamic {

// A tensor of any type and rank: `type`, `shape`, and the elements, which its copies share.
using tensor = detail::any_tensor;

// Returns a tensor as an operand. What belongs to a layer is a parameter: its packed form stays
// with its elements. Throws value_error for a tensor that holds nothing.
expression constant(const tensor& t, bool is_parameter = false);

// Stands for an input of a compiled expression: number `index`, counted from 0. Its first axis
// counts tokens, and its other extents follow from what it meets. Throws shape_error for rank 0.
expression input(std::size_t index, std::size_t rank = 2);

// See fmoe::einsum. Throws value_error for subscripts that are not well formed, and shape_error for
// an operand of another rank than its subscripts.
expression einsum(const std::string& subscripts, const std::vector<expression>& operands);

// A function of every element; `parameter` as for fmoe::apply.
expression apply(pointwise fn, const expression& e, double parameter = 0);

// Element by element, with the operand of fewer axes repeated along the leading axes of the other.
expression add(const expression& a, const expression& b);
expression subtract(const expression& a, const expression& b);
expression multiply(const expression& a, const expression& b);
expression divide(const expression& a, const expression& b);
expression max(const expression& a, const expression& b);
expression min(const expression& a, const expression& b);

// a where the condition is above 0, else b. Throws shape_error if the condition has more axes.
expression where(const expression& condition, const expression& a, const expression& b);

// A function of every row; `parameter` is the alpha of entmax and the epsilon of norms.
expression map_rows(row_function fn, const expression& e, double parameter = 0);
expression best_groups(const expression& scores, std::size_t groups, std::size_t active,
                       group_score score = group_score::sum_of_two);
expression bounded_softmax(const expression& scores, const expression& bound);

// One number of every row: [..., n] -> [...].
expression norm(row_norm which, const expression& e);
// [...] -> [..., n].
expression repeat(const expression& e, std::size_t n);

// Selections along the last axis: see fmoe::top_k and its like.
expression top_k(const expression& scores, std::size_t k, weighting weights = weighting::score);
expression top_k(const expression& scores, const expression& ranked, std::size_t k,
                 weighting weights = weighting::score);
expression top_p(const expression& scores, double mass, weighting weights);
expression nonzeros(const expression& scores);
expression jump_relu(const expression& scores, const expression& thresholds);
expression expert_choice(const expression& scores, const expression& ranked, weighting weights,
                         std::size_t capacity = all, double factor = 2);
expression product_top_k(const expression& scores, std::size_t k, std::size_t each,
                         weighting weights = weighting::softmax);

// The values, or the indices, of the entries that a selection keeps: [..., n] -> [..., K].
expression kept_values(const expression& selection);
expression kept_indices(const expression& selection);

// Joins expressions along an axis. Throws shape_error unless all have the same number of axes, and
// that one.
expression concat(const std::vector<expression>& parts, std::size_t axis);
expression append_one(const expression& e);

// States extents that nothing else tells; `all` may be any.
expression sized(const expression& e, std::span<const std::size_t> shape);
expression sized(const expression& e, std::initializer_list<std::size_t> shape);

// An operand of einsum: see fmoe::all_except.
expression all_except(std::span<const index_pair> pairs, std::size_t rows, std::size_t columns);

}  // namespace fmoe::dynamic

namespace fmoe::detail {

// An operand of an operation of many.
using listed_operand = const dynamic::expression*;

// einsum of subscripts in full, and concat, whose operands are known to fit.
dynamic::expression contraction(std::string_view full,
                                std::initializer_list<listed_operand> operands);
dynamic::expression concatenation(std::initializer_list<listed_operand> parts, extent axis);

dynamic::expression apply(std::shared_ptr<const own_function> fn, const dynamic::expression& e);
dynamic::expression drop(const dynamic::expression& e, const dynamic::expression& where);
dynamic::expression above(const dynamic::expression& e, const dynamic::expression& bound);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/expr/operations-inl.hpp>
#endif
