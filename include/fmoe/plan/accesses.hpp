// SPDX-License-Identifier: MIT
// What a step reads and writes. Every kind of step has its own overload and none of them is
// general, so that a new kind without one does not compile.
#pragma once

#include <fmoe/base/vector.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::plan {

enum class access_mode : std::uint8_t {
  read,
  write,
  update,  // reads what an earlier step left there, and writes
};

struct access {
  view where;
  access_mode mode;
};

using access_list = vector<access>;

// The accesses of one step, those of a loop's or a group's body among them, in the order in which
// the step names them.
class access_collector {
 public:
  explicit access_collector(const step_plan& p) : plan_(p) {}

  void add(const step& s) {
    visit([&](const auto& kind) { add(kind); }, s);
  }

  void add(const gemm_step& s) {
    read(s.a);
    read_weight(s.weight);
    read_others(s.epilogues);
    s.accumulate ? update(s.c) : write(s.c);
  }
  void add(const batched_step& s) {
    read(s.a);
    read(s.b);
    read_others(s.epilogues);
    write(s.c);
  }
  void add(const reduce_step& s) {
    read(s.a);
    read_others(s.epilogues);
    write(s.c);
  }
  void add(const gather_step& s) {
    read(s.selection);
    read(s.table);
    read_others(s.epilogues);
    write(s.c);
  }
  void add(const rescale_step& s) {
    read(s.selection);
    read(s.factors);
    write(s.c);
  }
  void add(const sample_step& s) {
    read(s.selection);
    read(s.x);
    read(s.table);
    read_others(s.epilogues);
    write(s.c);
  }
  void add(const pointwise_step& s) {
    read(s.a);
    read_others(s.epilogues);
    write(s.c);
  }
  void add(const row_norm_step& s) {
    read(s.a);
    write(s.c);
  }
  void add(const row_function_step& s) {
    read(s.a);
    if (s.bounds != 0) read(s.bound);
    write(s.c);
  }
  void add(const append_step& s) {
    read(s.a);
    write(s.c);
  }
  void add(const select_step& s) {
    read(s.a);
    if (s.ranked.exists()) read(s.ranked);
    write(s.selection);
  }
  void add(const screen_step& s) {
    read(s.a);
    read_weight(s.weight);
    read_others(s.epilogues);
    write(s.scratch);
    write(s.selection);
  }
  void add(const token_sum_step& s) {
    read(s.a);
    if (s.b.exists()) read(s.b);
    write(s.c);
  }
  void add(const selection_sum_step& s) {
    read(s.selection);
    if (s.b.exists()) read(s.b);
    write(s.c);
  }
  void add(const expert_choice_step& s) {
    read(s.scores);
    read(s.ranked);
    write(s.selection);
  }
  void add(const kept_step& s) {
    read(s.selection);
    write(s.c);
  }
  void add(const expand_step& s) {
    read(s.selection);
    write(s.c);
  }
  void add(const exclude_step& s) {
    for (const view& v : s.operands) read(v);
    update(s.c);
  }
  void add(const take_step& s) {
    read(s.selection);
    read(s.a);
    write(s.c);
  }
  void add(const weigh_step& s) {
    read(s.selection);
    read(s.a);
    write(s.c);
  }
  void add(const reweigh_step& s) {
    read(s.selection);
    if (s.scores.exists()) read(s.scores);
    write(s.c);
  }
  void add(const unpair_step& s) {
    read(s.selection);
    write(s.c);
  }
  void add(const expert_sum_step& s) {
    read(s.selection);
    read(s.a.at);
    if (s.b.at.exists()) read(s.b.at);
    write(s.c);
  }
  void add(const keep_step& s) {
    read(s.a);
    read(s.selection);
    write(s.c);
  }
  void add(const pick_step& s) {
    read(s.a);
    write(s.c);
  }
  void add(const put_step& s) {
    read(s.a);
    read(s.selection);
    write(s.c);
  }
  void add(const loop_step& s) {
    for (const step& inner : s.body) add(inner);
  }
  void add(const group_step& s) {
    read(s.selection);
    for (const step& inner : s.body) add(inner);
    read_others(s.epilogues);
    write(s.c);
  }

  access_list take() { return std::move(found_); }

 private:
  void read(const view& v) { found_.push_back({v, access_mode::read}); }
  void write(const view& v) { found_.push_back({v, access_mode::write}); }
  void update(const view& v) { found_.push_back({v, access_mode::update}); }
  void read_weight(extent weight) { read({.storage = plan_.weights[weight].storage}); }
  void read_others(const vector<epilogue>& epilogues) {
    for (const epilogue& e : epilogues)
      if (e.what != pass_kind::map) read(e.other);
  }

  const step_plan& plan_;
  access_list found_;
};

// The views that a step of the plan, of any kind or of a known one, reads and writes. A packed
// weight stands as the storage that it was packed from.
template <class Step>
access_list accesses(const step_plan& p, const Step& s) {
  access_collector collector(p);
  collector.add(s);
  return collector.take();
}

}  // namespace fmoe::plan
