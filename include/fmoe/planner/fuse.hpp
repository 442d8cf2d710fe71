// SPDX-License-Identifier: MIT
// Fuse: bias, activation, Hadamard product and sum become passes over the result of the operation
// that makes their operand, while a tile of it is in L1. A sum of two products becomes one longer
// sum.
#pragma once

#include <fmoe/planner/program_index.hpp>

namespace fmoe::planner {

// True if passes can follow the operation.
inline bool takes_passes(const operation& o) {
  return is<gemm_op, gather_op, batched_op, reduce_op, pointwise_op, put_op>(o);
}

// Fuses the pointwise operation at `place` into the producer of an operand that no other operation
// reads. It prefers a gather, whose whole row is in L1 at once, and otherwise takes the producer
// that runs last, when the other operand already exists.
inline void fuse_into_producer(program& p, const program_index& index, extent place) {
  const operation& o = p.operations[place];
  if (!is<pointwise_op>(o)) return;
  const pass& first = o.passes[0];
  const bool symmetric = o.passes.size() == 1 && is_symmetric(first.what) &&
                         p[first.other].shape == p[o.in[0].value].shape &&
                         p[first.other].scope == p[o.in[0].value].scope;
  std::optional<extent> best;
  value_id base = value_id::none;
  for (const value_id v : {o.in[0].value, symmetric ? first.other : value_id::none}) {
    if (v == value_id::none || index.uses(v) != 1) continue;
    const bool has_same_rows =
        p[v].scope == p[o.out.value].scope && p[v].group == p[o.out.value].group;
    const auto maker = index.producer(v);
    if (!has_same_rows || !maker) continue;
    if (index.stage(*maker) != index.stage(place)) continue;
    if (!takes_passes(p.operations[*maker])) continue;
    const auto rank = [&](extent k) { return std::pair(is<gather_op>(p.operations[k]), k); };
    if (best && rank(*maker) <= rank(*best)) continue;
    best = maker;
    base = v;
  }
  if (!best) return;
  operation fused = p.take(*best);
  vector<pass> passes = o.passes;
  if (base != o.in[0].value) passes[0].other = o.in[0].value;
  const value_id other = passes[0].other;
  const bool one_sum = symmetric && first.what == pass_kind::add && is<gemm_op>(fused) &&
                       fused.passes.empty() && fused.start == value_id::none &&
                       index.uses(other) == 1 && !p[other].leaf;
  if (one_sum) fused.start = other;
  else
    for (const pass& next : passes) fused.passes.push_back(next);
  fused.out.value = o.out.value;
  // The producer moves down to where its last operand exists.
  p.operations[place] = std::move(fused);
}

// Replaces a product along an axis with an appended 1 by the product without the 1, plus the last
// slice of the weight. Nothing is copied.
inline void fuse_append(program& p) {
  if (std::ranges::none_of(p.operations, is<append_op>)) return;
  list_by<value_id, value_id> appended(p.values.size(), value_id::none);  // what got a 1
  vector<operation> done;
  for (operation& o : p.operations) {
    if (is<append_op>(o)) appended[o.out.value] = o.in[0].value;
    while (is<gemm_op>(o) && appended[o.in[0].value] != value_id::none) {
      const use left = o.in[0], weight = o.in[1];
      const char axis = left.labels.back();
      const axis_labels slice =
          labels_where(o.out.labels, [&](char c) { return has(weight.labels, c); });
      const auto summed = labels_where(left.labels, [&](char c) { return !has(o.out.labels, c); });
      const bool sums_only_axis = summed.size() == 1 && !has(o.out.labels, axis);
      if (!sums_only_axis || !o.out.labels.ends_with(slice)) break;
      if (std::ranges::count(weight.labels, axis) != 1) break;
      value bias;
      for (const char c : slice) bias.shape.push_back(p.extent_of(weight, c));
      bias.scope = value_scope::constant;
      bias.parameter = p[weight.value].parameter;
      done.push_back({.what = slice_op{p.extent_of(left, axis) - 1, weight.labels.find(axis)},
                      .in = {weight},
                      .out = {p.add(std::move(bias)), slice}});
      o.in[0].value = appended[left.value];
      o.passes.insert(o.passes.begin(), {pass_kind::add, {}, done.back().out.value});
    }
    done.push_back(std::move(o));
  }
  p.operations = std::move(done);
  remove_unread(p);
}

inline void fuse(program& p) {
  fuse_append(p);
  const program_index index(p);
  for (extent place = 0; place < p.operations.size(); ++place) fuse_into_producer(p, index, place);
  p.close_gaps();
}

}  // namespace fmoe::planner
