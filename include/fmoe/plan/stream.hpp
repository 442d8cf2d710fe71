// SPDX-License-Identifier: MIT
// Stream: an intermediate too large for L2 whose one reader sums over its first axis, or selects along it, is made and
// used up in chunks of that axis, so that only a chunk of it exists. Sums go on in the same order, so no bit changes.
#pragma once

#include <vector>

#include <fmoe/plan/options.hpp>
#include <fmoe/plan/program.hpp>

namespace fmoe {

struct stream_loop {          // the operations run once per chunk
  char label;                 // as the producer names it
  extent length, chunk;       // of the axis
  std::vector<int> operations;  // in order; the last one is the reader
  std::vector<int> values;      // exist only as chunks
};

class streams {
 public:
  streams(const program& p, const plan_options& o, extent tile) : program_(p), options_(o), taken_(p.operations.size(), false) {
    for (extent i = 0; i < p.operations.size(); ++i) try_stream(static_cast<int>(i), tile);
  }

  std::vector<stream_loop> take() { return std::move(loops_); }

 private:
  const operation& op(int i) const { return program_.operations[static_cast<extent>(i)]; }

  // Elements of v per unit of its first axis.
  extent inner(int v) const {
    const auto& shape = program_[v].shape;
    return element_count(std::span(shape).subspan(1));
  }

  // Can the operation make its result in chunks of the first axis?
  bool makes(const operation& o) const {
    const value& v = program_[o.out.value];
    if (o.start >= 0 || o.group >= 0 || v.shape.empty() || !v.tokens || v.selection) return false;
    if (o.what == operation::kind::gemm) return !has(o.in[0].labels, o.out.labels[0]);
    return o.what == operation::kind::pointwise && program_[o.in[0].value].leaf < 0;
  }

  // Can it use v up in such chunks?
  bool takes(const operation& o, int v) const {
    if (program_.reads(o, v) != 1 || o.in[0].value != v || o.group >= 0) return false;
    const std::string& labels = o.in[0].labels;
    if (o.what == operation::kind::select)
      return labels.size() == 1 && o.rule.what != selection_rule::kind::top_p && !is_barrier(o) &&
             o.rule.weights != weighting::softmax_of_all;
    return o.what == operation::kind::gemm && !has(o.out.labels, labels[0]);
  }

  bool carries(int v, int like) const {
    const value& x = program_[v];
    return v != like && x.leaf < 0 && x.tokens && !x.selection && x.shape == program_[like].shape;
  }

  void try_stream(int maker, extent tile) {
    const int v = op(maker).out.value;
    const value& x = program_[v];
    if (taken_[static_cast<extent>(maker)] || v == program_.result || !x.tokens || x.shape.empty() || program_.uses(v) != 1 ||
        x.size() * tile * options_.element_bytes <= options_.whole)
      return;
    const int reader = program_.consumer(v);
    if (taken_[static_cast<extent>(reader)] || program_.stage(maker) != program_.stage(reader) || !makes(op(maker)) || !takes(op(reader), v)) return;

    stream_loop loop{op(maker).out.labels[0], x.shape[0], 0, {maker}, {v}};
    for (extent k = 0; k < loop.operations.size(); ++k) {  // whatever is made just for this, all the way up
      const operation& o = op(loop.operations[k]);
      std::vector<int> from;
      if (o.what == operation::kind::pointwise) from.push_back(o.in[0].value);
      for (const pass& p : o.passes)
        if (p.other >= 0) from.push_back(p.other);
      for (const int w : from) {
        if (!carries(w, v) || program_.uses(w) != 1) continue;
        const int q = program_.producer(w);
        if (makes(op(q)) && !taken_[static_cast<extent>(q)] && program_.stage(q) == program_.stage(reader)) loop.operations.push_back(q), loop.values.push_back(w);
      }
    }
    std::ranges::sort(loop.operations);
    loop.operations.push_back(reader);

    // A chunk is whole panels for those who make it, and whole blocks of the sum for a reader that sums.
    const extent sums = op(reader).what == operation::kind::gemm ? options_.sum_block : 1;
    extent unit = 1;
    while (unit * inner(v) % options_.panel != 0 || unit * inner(v) % sums != 0) ++unit;
    const extent most = std::max(unit, options_.chunk_width / std::max<extent>(1, inner(v)) / unit * unit);
    loop.chunk = round_up(divide_up(loop.length, divide_up(loop.length, most)), unit);
    for (const int k : loop.operations) taken_[static_cast<extent>(k)] = true;
    loops_.push_back(std::move(loop));
  }

  const program& program_;
  const plan_options& options_;
  std::vector<bool> taken_;
  std::vector<stream_loop> loops_;
};

}  // namespace fmoe
