// SPDX-License-Identifier: MIT
// The kinds of nodes, of operations and of steps. A new one is a file of ops/, and is named here.
#pragma once

#include <fmoe/base/variant.hpp>
#include <fmoe/ops/append.hpp>
#include <fmoe/ops/concat.hpp>
#include <fmoe/ops/einsum.hpp>
#include <fmoe/ops/exclude.hpp>
#include <fmoe/ops/expert_sum.hpp>
#include <fmoe/ops/gather.hpp>
#include <fmoe/ops/group.hpp>
#include <fmoe/ops/join.hpp>
#include <fmoe/ops/kept.hpp>
#include <fmoe/ops/leaf.hpp>
#include <fmoe/ops/map.hpp>
#include <fmoe/ops/mask.hpp>
#include <fmoe/ops/places.hpp>
#include <fmoe/ops/pointwise.hpp>
#include <fmoe/ops/product.hpp>
#include <fmoe/ops/row_function.hpp>
#include <fmoe/ops/row_norm.hpp>
#include <fmoe/ops/screen.hpp>
#include <fmoe/ops/select.hpp>
#include <fmoe/ops/slice.hpp>
#include <fmoe/ops/stop_gradient.hpp>
#include <fmoe/ops/token_sum.hpp>
#include <fmoe/ops/unpair.hpp>

namespace fmoe::ir {

using node_kind = variant<leaf_node, einsum_node, map_node, join_node, row_function_node,
                          row_norm_node, select_node, kept_node, append_node, concat_node,
                          slice_node, unpair_node, mask_node, stop_gradient_node>;

}  // namespace fmoe::ir

namespace fmoe::planner {

using operation_kind =
    variant<product_op, gemm_op, batched_op, gather_op, rescale_op, sample_op, reduce_op,
            pointwise_op, row_function_op, row_norm_op, append_op, select_op, kept_op, screen_op,
            expand_op, slice_op, unpair_op, concat_op, take_op, weigh_op, reweigh_op, pick_op,
            put_op, keep_op, token_sum_op, expert_sum_op, exclude_op>;

}  // namespace fmoe::planner

namespace fmoe::plan {

struct loop_step;  // those that hold other steps: plan/steps.hpp
struct group_step;

using step = variant<gemm_step, batched_step, reduce_step, gather_step, rescale_step, sample_step,
                     pointwise_step, row_function_step, row_norm_step, append_step, select_step,
                     screen_step, token_sum_step, selection_sum_step, expert_choice_step, kept_step,
                     expand_step, exclude_step, take_step, weigh_step, reweigh_step, unpair_step,
                     expert_sum_step, pick_step, put_step, keep_step, loop_step, group_step>;

}  // namespace fmoe::plan
