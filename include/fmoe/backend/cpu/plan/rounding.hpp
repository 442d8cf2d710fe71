// SPDX-License-Identifier: MIT
// Rounding: which products round their rows to bf16 (compile_options::bf16_products), and the
// memory of the rounded rows.
#pragma once

#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/backend/cpu/plan/stream.hpp>

namespace fmoe::cpu {

// True if the operation is a product of tokens' floats with weights that are stored as bf16.
inline bool rounds_rows(const planner::program& p, const planner::plan_options& o,
                        const planner::operation& product) {
  const bool is_product = planner::is<planner::gemm_op>(product) && o.element_bytes == 4;
  if (!o.bf16_products || !is_product) return false;
  const planner::value& w = p[product.in[1].value];
  return w.leaf && p.leaves[*w.leaf].type == dtype::bfloat16;
}

// Returns the elements that the rounded rows of a product take, for so many rows of each operand.
inline extent rounded_size(const planner::program& p, const planner::operation& product,
                           const stream_loop* loop, extent rows) {
  const planner::use& a = product.in[0];
  const std::string kept =
      planner::labels_where(product.out.labels, [&](char c) { return has(a.labels, c); });
  extent k = p.size_of(a, a.labels.substr(kept.size()));
  const bool is_cut = loop != nullptr && std::ranges::count(loop->values, product.out.value) == 0;
  if (is_cut) k = k / std::max<extent>(1, loop->length) * loop->chunk;
  return rows * p.size_of(a, kept) * rounded_stride(k);
}

}  // namespace fmoe::cpu
