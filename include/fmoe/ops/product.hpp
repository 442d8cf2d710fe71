// SPDX-License-Identifier: MIT
// Product: two operands, as the order search leaves them, or one. The passes match makes of each
// product of two a gemm, a batched product, a gather or a pointwise operation.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <fmoe/base/axis_labels.hpp>
#include <fmoe/base/labels.hpp>
#include <fmoe/ops/view.hpp>

namespace fmoe::plan {

struct axis_stride {  // one label of a constant
  extent length, stride;
  bool operator==(const axis_stride&) const = default;
};

// c[t, b, f, N] (+)= a[t, b, f, K] w[b, K, N], one product for each batch and free position.
struct gemm_step {
  std::string text;
  view a, c;
  extent weight = 0;
  extent K = 0, N = 0;
  struct row {
    extent a, c, weight;  // offsets; that of the weight counts batches
    bool operator==(const row&) const = default;
  };
  vector<row> rows{};
  // Rows and columns of w for each unit of the loop; 0 if the loop does not cut them.
  extent k_step = 0, n_step = 0;
  extent expert_step = 0;   // batches of w for each expert of a group
  bool accumulate = false;  // the sum starts from the content of c
  bool ranks = false;       // on a GPU: what follows from the result ranks experts
  vector<epilogue> epilogues{};

  const char* name() const { return "gemm"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read_weight(weight);
    to.read_others(epilogues);
    accumulate ? to.update(c) : to.write(c);
  }
  void describe(auto& text_of, const auto& plan) const {
    const char* cut = k_step != 0   ? ", a chunk of k at a time"
                      : n_step != 0 ? ", a chunk of n at a time"
                                    : "";
    text_of << "  k " << K << " n " << N
            << (rows.size() > 1 ? " x " + std::to_string(rows.size()) : "") << cut
            << words_of(plan.weights[weight].rounding) << (accumulate ? ", continues the sum" : "");
  }
};

// For each token: c[out] = sum over summed of a[...] b[...].
struct batched_step {
  std::string text;
  view a, b, c;
  vector<nest_axis> out{}, summed{};  // the last axis of `out` is the vector
  extent columns = 0;                 // columns in a row of c
  vector<epilogue> epilogues{};
  enum class cut : std::uint8_t {
    none,
    out,
    summed
  } axis = cut::none;  // the loop cuts the first axis of these

  const char* name() const { return "batched"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read(b);
    to.read_others(epilogues);
    to.write(c);
  }
  void describe(auto& text_of, const auto&) const {
    if (axis == cut::out) text_of << "  a chunk of the result at a time";
    if (axis == cut::summed) text_of << "  a chunk of the sum at a time";
  }
};

// For each token: c[out] = sum over summed of a; a permutation if nothing is summed.
struct reduce_step {
  std::string text;
  view a, c;
  vector<nest_axis> out{}, summed{};
  extent columns = 0;
  vector<epilogue> epilogues{};

  const char* name() const { return summed.empty() ? "permute" : "reduce"; }
  void list_accesses(auto& to) const {
    to.read(a);
    to.read_others(epilogues);
    to.write(c);
  }
};

}  // namespace fmoe::plan

namespace fmoe::planner {

// An activation times a constant.
struct gemm_op {
  const char* name() const { return "gemm"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto* loop, auto& steps) const {
    const auto& program = to.program();
    const auto &a = o.in[0], &w = o.in[1];
    axis_labels rows, batch;  // of the result; the other labels are columns
    for (const char c : o.out.labels) {
      if (!has(a.labels, c)) continue;
      rows += c;
      if (has(w.labels, c)) batch += c;
    }
    const axis_labels summed = a.labels.substr(rows.size());
    const axis_labels columns = o.out.labels.substr(rows.size());
    plan::gemm_step s;
    s.text = to.text(o);
    s.K = program.size_of(a, summed);
    s.N = program.size_of(o.out, columns);
    auto depth = to.axes(w, summed);
    for (extent k = 0; k < depth.size(); ++k)
      depth[k].length = program.extent_of(a, summed[k]);  // without the row of a bias
    const axis_labels batches = o.in_group() ? o.expert + batch : batch;
    if (o.in_group()) s.expert_step = program.size_of(w, batch);
    s.weight = to.weight({.storage = to.storage_of(w.value),
                          .batch = to.axes(w, batches),
                          .depth = std::move(depth),
                          .columns = to.axes(w, columns),
                          .batches = program.size_of(w, batches),
                          .K = s.K,
                          .N = s.N,
                          .rounding = to.rounding(o)});
    const bool makes_chunks = to.cuts_result(o, loop);
    s.a = makes_chunks ? to.whole(a.value) : to.in_loop(a.value, loop);
    s.c = makes_chunks ? to.in_loop(o.out.value, loop) : to.whole(o.out.value);
    s.rows = {{0, 0, 0}};
    for (const char c : rows) {
      vector<plan::gemm_step::row> more;
      for (const auto& r : s.rows)
        for (extent i = 0; i < program.extent_of(a, c); ++i)
          more.push_back({r.a + i * program.stride(a, c), r.c + i * program.stride(o.out, c),
                          has(batch, c) ? r.weight * program.extent_of(a, c) + i : r.weight});
      s.rows = std::move(more);
    }
    if (makes_chunks) s.n_step = s.N / std::max<extent>(1, loop->length);
    else if (loop != nullptr) s.k_step = s.K / std::max<extent>(1, loop->length);
    s.accumulate = o.has_start();
    s.epilogues = to.epilogues(o, loop);
    steps.push_back(std::move(s));
  }
};

// Any other pair of operands: one small product for each token.
struct batched_op {
  const char* name() const { return "batched"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto* loop, auto& steps) const {
    const auto &a = o.in[0], &b = o.in[1];
    plan::batched_step s{.text = to.text(o),
                         .a = to.whole(a.value),
                         .b = to.whole(b.value),
                         .c = to.whole(o.out.value),
                         .columns = to.value_of(o.out).size(),
                         .epilogues = to.epilogues(o, loop)};
    for (const char c : o.out.labels) s.out.push_back(to.nest(&a, &b, o.out, c));
    for (const char c : a.labels)
      if (has(b.labels, c) && !has(o.out.labels, c)) s.summed.push_back(to.nest(&a, &b, o.out, c));
    if (loop != nullptr) {
      const bool makes = to.cuts_result(o, loop);
      s.axis = makes ? plan::batched_step::cut::out : plan::batched_step::cut::summed;
      const plan::nest_axis& cut = makes ? s.out[0] : s.summed[0];
      if (!to.is_chunked(a.value)) s.a.step = cut.a;
      if (!to.is_chunked(b.value)) s.b.step = cut.b;
    }
    steps.push_back(std::move(s));
  }
};

// Two operands that no pass has matched run as the most general kind.
struct product_op : batched_op {
  const char* name() const { return "product"; }
};

// One operand: the sum over the labels that the result does not have, in any order of axes.
struct reduce_op {
  const char* name() const { return "reduce"; }
  void interpret(auto& in, const auto& o) const { in.contract(o); }

  void emit(auto& to, const auto& o, const auto*, auto& steps) const {
    const auto& a = o.in[0];
    auto s = to.reduction(o, a);
    s.epilogues = to.epilogues(o, nullptr);
    axis_labels seen = o.out.labels;
    for (const char c : a.labels) {
      if (has(seen, c)) continue;
      seen += c;
      s.summed.push_back(to.nest(&a, nullptr, o.out, c));
    }
    steps.push_back(std::move(s));
  }
};

}  // namespace fmoe::planner
