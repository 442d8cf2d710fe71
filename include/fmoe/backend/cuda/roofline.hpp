// SPDX-License-Identifier: MIT
// The least time of each step of a plan on a GPU: that of its arithmetic at the peak, of the bytes
// that memory or L2 gives it, or of its launch, whichever is the greatest. Nothing here was fitted.
#pragma once

#include <cmath>
#include <memory>
#include <span>

#include <fmoe/backend/cuda/policy.hpp>
#include <fmoe/base/text_stream.hpp>
#include <fmoe/base/time_text.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/plan/accesses.hpp>

namespace fmoe::cuda {

// What one run of a step does.
struct step_work {
  double flops = 0, rate = 0;    // of the units that do them
  double memory = 0, cache = 0;  // bytes from and to memory, and from and to L2 alone
  double launches = 1;
  std::shared_ptr<const step_work> first = nullptr;  // of an earlier kernel

  struct limit {
    double seconds;
    const char* name;
  };
  limit on(const machine& m) const {
    const limit all[] = {{launches * m.gpu.launch, "launch"},
                         {flops == 0 ? 0 : flops / rate, "arithmetic"},
                         {memory / m.every.memory, "HBM"},
                         {(memory + cache) / m.every.l2, "L2"}};
    limit own = *std::ranges::max_element(all, {}, &limit::seconds);
    if (first == nullptr) return own;
    const limit before = first->on(m);
    return {own.seconds + before.seconds, own.seconds > before.seconds ? own.name : before.name};
  }
};

class roofline {
 public:
  // Times are those of a call of as many tokens as the plan takes.
  roofline(const step_plan& p, std::span<const ir::leaf_node> leaves, const machine& m, math policy,
           extent element_bytes)
      : plan_(p),
        machine_(m),
        policy_(element_bytes == sizeof(float) ? policy : math::exact),
        element_bytes_(static_cast<double>(element_bytes)) {
    for (const storage_row& row : p.storages)
      bytes_.push_back(row.where == storage_row::kind::leaf
                           ? std::min(bytes_each(leaves[row.source].outline()), element_bytes_)
                           : element_bytes_);
    for (const stage& stage : p.stages) {
      const double tokens = static_cast<double>(std::max<extent>(1, p.token_count));
      runs_ = stage.per_call ? 1 : std::ceil(tokens / static_cast<double>(p.tile));
      rows_ = tokens / runs_;
      for (extent i = stage.first; i < stage.end; ++i) add(p.steps[i]);
    }
  }

  double seconds() const { return seconds_; }
  // Of each step in the order in which it is printed: its arithmetic, bytes, operations and time,
  // and what bounds it.
  const vector<std::string>& notes() const { return notes_; }

 private:
  using work = step_work;

  static double number(extent n) { return static_cast<double>(n); }

  void add(const step& s) {
    const extent place = notes_.size();
    notes_.emplace_back();
    const work w = visit([&](const auto& kind) { return work_of(kind); }, s);
    const auto [seconds, name] = w.on(machine_);
    seconds_ += runs_ * seconds;
    detail::text_stream note;
    note << std::setprecision(3);
    if (const auto* const product = get_if<gemm_step>(&s))
      note << name_of(math_of(*product, policy_)) << "; ";
    double bytes = 0, flops = 0;
    for (const work* part = &w; part != nullptr; part = part->first.get()) {
      bytes += runs_ * (part->memory + part->cache);
      flops += runs_ * part->flops;
    }
    note << bytes / 1e6 << " MB, " << flops / 1e9 << " GFLOP, "
         << detail::time_text(runs_ * seconds) << " by " << name;
    notes_[place] = note.str();
  }

  // Bytes that a step reads and writes: rows of temporaries stay in L2 if all of them fit.
  void touch(work& w, extent storage, double elements) const {
    using enum storage_row::kind;
    const storage_row& row = plan_.storages[storage];
    const bool is_temporary = row.where == arena || row.where == call || row.where == once;
    const double bytes = elements * bytes_[storage],
                 all = rows_ * number(row.elements) * element_bytes_;
    (is_temporary && all <= number(machine_.l2) ? w.cache : w.memory) += bytes;
  }
  bool is_row_of_token(extent storage) const {
    using enum storage_row::kind;
    const auto where = plan_.storages[storage].where;
    return where != leaf && where != constant && where != once;
  }
  void touch_rows(work& w, const view& v, double of_each) const {
    if (v.exists()) touch(w, v.storage, is_row_of_token(v.storage) ? rows_ * of_each : of_each);
  }
  // Whole rows of all that a step names.
  template <class Step>
  work streaming(const Step& s, double flops) const {
    work w{.flops = flops, .rate = machine_.every.flops};
    for (const access& a : accesses(plan_, s))
      touch_rows(w, a.where, number(plan_.storages[a.where.storage].elements));
    return w;
  }
  void add_others(work& w, const vector<epilogue>& passes, double numbers) const {
    for (const epilogue& e : passes) {
      if (e.what == pass_kind::map) continue;
      const auto& row = plan_.storages[e.other.storage];
      touch_rows(w, e.other, std::min(number(row.elements), numbers));
    }
  }

  // The rate of products, and how often each is done.
  std::pair<double, double> rate_of(math how) const {
    switch (how) {
      case math::tf32x3: return {machine_.gpu.tf32_dots, 3};
      case math::tf32: return {machine_.gpu.tf32_dots, 1};
      case math::bf16: return {machine_.every.bf16_dots, 1};
      default: return {machine_.every.flops, 1};
    }
  }

  work work_of(const gemm_step& s) const {
    const double positions = number(s.rows.size()), K = number(s.K), N = number(s.N);
    const auto [rate, times] = rate_of(math_of(s, policy_));
    work w{.flops = 2 * times * rows_ * positions * K * N, .rate = rate};
    const packed_weight& weight = plan_.weights[s.weight];
    const double batches =
        s.expert_step != 0 ? number(s.expert_step) * experts_ : number(weight.batches);
    touch(w, weight.storage, batches * K * N);
    touch_rows(w, s.a, std::min(positions * K, number(plan_.storages[s.a.storage].elements)));
    touch_rows(w, s.c, (s.accumulate ? 2 : 1) * positions * N);
    add_others(w, s.epilogues, positions * N);
    return w;
  }

  static double places(const vector<nest_axis>& axes) {
    double n = 1;
    for (const nest_axis& a : axes) n *= number(a.length);
    return n;
  }
  // The elements that a nest reads of an operand with these strides.
  template <class Stride>
  static double read(const auto& s, Stride stride) {
    double n = 1;
    for (const auto* axes : {&s.out, &s.summed})
      for (const nest_axis& a : *axes)
        if (a.*stride != 0) n *= number(a.length);
    return n;
  }
  work nest(const auto& s, const view& b) const {
    work w{.flops = 2 * rows_ * places(s.out) * places(s.summed), .rate = machine_.every.flops};
    touch_rows(w, s.a, read(s, &nest_axis::a));
    if (b.exists()) touch_rows(w, b, read(s, &nest_axis::b));
    touch_rows(w, s.c, places(s.out));
    return w;
  }
  work work_of(const batched_step& s) const {
    work w = nest(s, s.b);
    add_others(w, s.epilogues, number(s.columns));
    return w;
  }
  work work_of(const reduce_step& s) const {
    work w = nest(s, {});
    add_others(w, s.epilogues, number(s.columns));
    return w;
  }
  work work_of(const token_sum_step& s) const {
    work w = nest(s, s.b);
    w.flops *= number(plan_.token_count) / rows_;
    return w;
  }

  // The rows of a table of n that so many tokens read, if each takes `keep` of them at random.
  static double touched(double n, double keep, double tokens) {
    return n * (1 - std::pow(1 - std::min(1.0, keep / n), tokens));
  }
  work gathered(const view& selection, const view& table, double rows, double keep,
                double width) const {
    work w{.flops = 2 * rows_ * rows * keep * width, .rate = machine_.every.flops};
    const double n = number(plan_.storages[table.storage].elements) / width;
    touch(w, table.storage, width * touched(n, rows * keep, rows_));
    w.cache += std::max(0.0, rows_ * rows * keep * width * bytes_[table.storage] - w.memory);
    touch_rows(w, selection, 2 * rows * keep);
    return w;
  }
  work work_of(const gather_step& s) const {
    work w = gathered(s.selection, s.table, number(s.rows), number(s.keep), number(s.N));
    touch_rows(w, s.c, number(s.N));
    add_others(w, s.epilogues, number(s.N));
    return w;
  }
  work work_of(const sample_step& s) const {
    work w = gathered(s.selection, s.table, number(s.rows), number(s.keep), number(s.K));
    touch_rows(w, s.x, number(s.K));
    touch_rows(w, s.c, 2 * number(s.rows * s.keep));
    return w;
  }

  work work_of(const pointwise_step& s) const {
    work w{.flops = rows_ * number(s.columns), .rate = machine_.every.flops};
    touch_rows(w, s.a, number(s.columns));
    touch_rows(w, s.c, number(s.columns));
    add_others(w, s.epilogues, number(s.columns));
    return w;
  }
  work work_of(const select_step& s) const {
    return streaming(s, rows_ * number(s.rows * s.columns));
  }
  // Scores by products of weights in bf16, and then a selection, which reads their bounds twice and
  // makes about twice as many as are kept again.
  work work_of(const screen_step& s) const {
    const double K = number(s.K), N = number(s.N), again = 2 * number(s.keep);
    work scores{.flops = 2 * rows_ * K * N, .rate = machine_.every.bf16_dots};
    scores.memory = 2 * K * N;
    touch_rows(scores, s.a, K);
    touch_rows(scores, s.scratch, N);
    work w{.flops = 2 * rows_ * again * K, .rate = machine_.every.flops, .launches = 3};
    w.memory = 4 * K * touched(N, again, rows_);
    w.cache = std::max(0.0, 4 * rows_ * again * K - w.memory);
    touch_rows(w, s.a, K);
    touch_rows(w, s.scratch, 2 * N);
    touch_rows(w, s.selection, 2 * number(s.keep));
    w.first = std::make_shared<const work>(scores);
    return w;
  }
  work work_of(const exclude_step& s) const {
    double each = 1;
    for (const auto* axes : {&s.inner, &s.outer, &s.free})
      for (const exclude_step::axis& a : *axes) each *= number(a.length);
    return streaming(s, 2 * rows_ * each * number(s.groups.size() * s.other.length));
  }
  work work_of(const expert_choice_step& s) const {
    work w = streaming(s, 0);
    w.launches = 3;
    return w;
  }
  work work_of(const selection_sum_step& s) const {
    work w = streaming(s, 2 * number(plan_.token_count * s.keep * s.N));
    w.launches = 5;
    return w;
  }
  work work_of(const auto& s) const { return streaming(s, 0); }
  work work_of(const loop_step&) const { return {}; }

  // The body of a group runs on the rows that its experts have; the group itself sorts them.
  work work_of(const group_step& s) {
    const double tokens = rows_, experts = experts_;
    rows_ = tokens * number(s.keep);
    experts_ = touched(number(s.experts), number(s.keep), tokens);
    for (const step& inner : s.body) add(inner);
    rows_ = tokens;
    experts_ = experts;
    work w{.launches = 4};
    touch_rows(w, s.selection, 2 * number(s.keep));
    return w;
  }

  const step_plan& plan_;
  const machine& machine_;
  math policy_;
  double element_bytes_, rows_ = 1, runs_ = 1, seconds_ = 0;
  double experts_ = 1;    // that rows of a group have
  vector<double> bytes_;  // of an element, by storage
  vector<std::string> notes_;
};

}  // namespace fmoe::cuda
