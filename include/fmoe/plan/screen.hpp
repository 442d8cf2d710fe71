// SPDX-License-Identifier: MIT
// Screen: a selection from many products with a parameter reads the parameter in 16 bits and
// computes only few of the products in full. No bit of the selection changes.
#pragma once

#include <fmoe/plan/rounding.hpp>
#include <fmoe/planner/program_index.hpp>

namespace fmoe::plan {

// True if x <= y gives f(x) <= f(y), also as floating-point numbers. What sets all to 0 that is not
// above a bound does so for numbers of 0 or more.
inline bool is_monotone(const planner::program& p, const planner::operation& o) {
  bool is_positive = false;
  for (const planner::pass& s : o.passes) {
    const bool is_relu = s.what == pass_kind::map && s.f == number_function{pointwise::relu};
    const bool by_column = s.what != pass_kind::map && p[s.other].is_constant() &&
                           p[s.other].size() == p[o.out.value].size();
    const bool bounds = s.what == pass_kind::above && by_column && is_positive;
    if (!is_relu && !bounds && !(s.what == pass_kind::add && by_column)) return false;
    is_positive = is_relu || bounds;
  }
  return true;
}

// True if the operation's last pass sets to 0 what is not above a bound.
inline bool is_bounded(const planner::operation& o) {
  return !o.passes.empty() && o.passes.back().what == pass_kind::above;
}

inline bool is_screened(const planner::program& p, const planner::operation& select,
                        const planner::operation& product, const planner::kernel_facts& kernels) {
  // The bound of the error is proven up to this depth.
  constexpr extent most_depth = extent{1} << 22;
  if (!planner::is<planner::gemm_op>(product)) return false;
  const selection_rule& rule = planner::as<planner::select_op>(select).rule;
  const bool is_plain_top_k =
      rule.what == selection_rule::kind::top_k && rule.weights != weighting::softmax_of_all;
  const bool is_thresholded =
      rule.what == selection_rule::kind::nonzero && is_bounded(product) && kernels.screens_nonzeros;
  const bool is_alone = product.start == planner::value_id::none && !product.in_group();
  if (!(is_plain_top_k || is_thresholded) || !is_alone || select.in.size() > 1) return false;
  const planner::use &x = product.in[0], &w = product.in[1];
  const bool makes_row = product.out.labels.size() == 1 && !has(x.labels, product.out.labels[0]);
  const bool reads_parameter = p[w.value].parameter && p[w.value].leaf;
  if (!makes_row || !reads_parameter) return false;
  if (!is_monotone(p, product)) return false;
  const extent columns = p[product.out.value].size(), depth = p[x.value].size(),
               keep = p[select.out.value].keep;
  // With less to leave out, bounds and candidates take what the products save.
  constexpr extent least_columns = 1024, least_depth = 64, columns_a_kept = 64;
  const bool is_large = columns >= least_columns && depth >= least_depth && depth < most_depth;
  const bool keeps_few = is_thresholded || (keep > 0 && keep * columns_a_kept <= columns);
  return is_large && keeps_few;
}

// Screens selections in plans for this many tokens.
inline void screen(planner::program& p, const planner::plan_options& o, extent tokens) {
  const bool is_wanted = o.shape.screen && !o.naive;
  if (!is_wanted || o.kernels.screen_size == nullptr) return;
  const planner::program_index index(p);
  for (extent i = 0; i < p.operations.size(); ++i) {
    planner::operation& select = p.operations[i];
    if (!planner::is<planner::select_op>(select)) continue;
    const planner::value_id scores = select.in[0].value;
    const auto maker = index.producer(scores);
    const bool is_only_here = index.readers(scores).size() == 1 && !index.is_result(scores);
    if (!maker || !is_only_here) continue;
    if (index.stage(*maker) != index.stage(i)) continue;
    const planner::operation& product = p.operations[*maker];
    if (!is_screened(p, select, product, o.kernels)) continue;
    if (rounding_of(p, o, product) != row_rounding::none) continue;
    const selection_rule rule = planner::as<planner::select_op>(select).rule;
    const extent columns = p[scores].size();
    planner::value scratch;
    scratch.shape = {
        o.kernels.screen_size(p[product.in[0].value].size(), columns,
                              screened_entries(rule, p[select.out.value].keep, columns), tokens)};
    select.what = planner::screen_op{rule};
    select.passes = product.passes;
    select.in = {product.in[0], product.in[1], {p.add(std::move(scratch)), "s"}};
    p.take(*maker);
  }
  p.close_gaps();
}

}  // namespace fmoe::plan
