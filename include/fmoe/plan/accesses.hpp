// SPDX-License-Identifier: MIT
// What a step reads and writes.
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

  template <class Step>
  void add(const Step& s) {
    s.list_accesses(*this);
  }

  access_list take() { return std::move(found_); }

  void read(const view& v) { found_.push_back({v, access_mode::read}); }
  void write(const view& v) { found_.push_back({v, access_mode::write}); }
  void update(const view& v) { found_.push_back({v, access_mode::update}); }
  void read_others(const vector<epilogue>& epilogues) {
    for (const epilogue& e : epilogues)
      if (e.what != pass_kind::map) read(e.other);
  }
  void read_weight(extent weight) { read({.storage = plan_.weights[weight].storage}); }

 private:
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
