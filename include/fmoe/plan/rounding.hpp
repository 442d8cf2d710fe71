// SPDX-License-Identifier: MIT
// Rounding: which products round their rows (compile_options::bf16_products and int8_products), and
// the memory of the rounded rows.
#pragma once

#include <fmoe/plan/plan.hpp>
#include <fmoe/plan/stream.hpp>

namespace fmoe::plan {

// Returns what a product of tokens' floats rounds its rows to: the type of its weights, if it is
// one that the options name, and if blocks of q8 lie along k.
inline row_rounding rounding_of(const planner::program& p, const planner::plan_options& o,
                                const planner::operation& product) {
  const bool is_product = planner::is<planner::gemm_op>(product) && o.element_bytes == 4;
  const bool rounds = o.bf16_products || o.int8_products;
  if (!is_product || !rounds) return row_rounding::none;
  const planner::value& w = p[product.in[1].value];
  if (!w.leaf) return row_rounding::none;
  const ir::leaf_node& leaf = p.leaves[*w.leaf];
  if (o.bf16_products && leaf.type == dtype::bfloat16) return row_rounding::bf16;
  if (!o.int8_products || leaf.type != dtype::q8) return row_rounding::none;
  const quantized_layout layout(leaf.type, element_count(leaf.shape), leaf.axis);
  vector<axis_stride> depth;
  for (const char c : product.in[0].labels)
    if (!has(product.out.labels, c))
      depth.push_back({p.extent_of(product.in[0], c), p.stride(product.in[1], c)});
  const bool fits = has_scales_of_groups(layout, offsets(depth), q8::block);
  return fits ? row_rounding::int8 : row_rounding::none;
}

// Returns the elements that the rounded rows of a product take, for so many rows of each operand.
inline extent rounded_size(const planner::program& p, const planner::operation& product,
                           const stream_loop* loop, extent rows) {
  const planner::use& a = product.in[0];
  const axis_labels kept =
      planner::labels_where(product.out.labels, [&](char c) { return has(a.labels, c); });
  extent k = p.size_of(a, a.labels.substr(kept.size()));
  const bool is_cut = loop != nullptr && std::ranges::count(loop->values, product.out.value) == 0;
  if (is_cut) k = k / std::max<extent>(1, loop->length) * loop->chunk;
  return rows * p.size_of(a, kept) * rounded_stride(k);
}

}  // namespace fmoe::plan
