// SPDX-License-Identifier: MIT
// Index of a program: which operation makes each value, and which operations read it. A pass makes
// it once, with one look at each operation, and asks as often as it needs to.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include <fmoe/base/list_by.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/planner/program.hpp>

namespace fmoe::planner {

// It tells of the program as it was when the index was made. Operations that change or leave their
// place need another index; those that program::take takes out leave all places as they are.
class program_index {
 public:
  explicit program_index(const program& p) : values_(p.values.size()) {
    for (const value_id r : p.results) values_[r].is_result = true;
    for (const operation& o : p.operations) each_read(o, [&](value_id v) { ++values_[v].count; });
    extent first = 0;
    for (entry& e : values_) {
      e.first = first;
      first += std::exchange(e.count, 0);
    }
    readers_.resize(first);
    for (extent k = 0, stage = 0; k < p.operations.size(); ++k) {
      const operation& o = p.operations[k];
      values_[o.out.value].maker = k;
      each_read(o, [&](value_id v) { readers_[values_[v].first + values_[v].count++] = k; });
      stages_.push_back(stage);
      stage += p.runs_per_call(o);
    }
  }

  // Returns the places of the operations that read v, in their order; an operation that reads it
  // twice stands there twice.
  std::span<const extent> readers(value_id v) const {
    return std::span(readers_).subspan(values_[v].first, values_[v].count);
  }
  bool is_result(value_id v) const { return values_[v].is_result; }
  // Returns how often operations read v. Being a result counts once more.
  extent uses(value_id v) const { return values_[v].count + is_result(v); }
  // Returns the place of the operation that makes v, which leaves do not have.
  std::optional<extent> producer(value_id v) const { return values_[v].maker; }
  // Returns how many operations before this one run once a call: operations of one pass over the
  // tiles have the same number.
  extent stage(extent operation) const { return stages_[operation]; }

 private:
  struct entry {
    std::optional<extent> maker;
    extent first = 0, count = 0;  // of its readers
    bool is_result = false;
  };

  list_by<value_id, entry> values_;
  vector<extent> readers_;  // of one value after the other
  vector<extent> stages_;   // of each operation
};

}  // namespace fmoe::planner
