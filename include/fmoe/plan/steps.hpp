// SPDX-License-Identifier: MIT
// The steps of a plan as plain data, over views of its storages: those of operations, which are in
// the files of ops/, and loops and groups of these. Nothing here knows a layer or a kernel. A step
// of an operation says what it reads and writes (list_accesses) and, where explain prints more than
// that, how it reads in words (describe). About how many floating-point operations it takes is
// flops, unless the machine's model of products tells (cpu/schedule/predict.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmoe/base/checked.hpp>
#include <fmoe/base/number_function.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ops/kinds.hpp>

namespace fmoe::plan {

// Returns the offset of every combination of the axes, row-major.
inline vector<extent> offsets(const vector<axis_stride>& axes) {
  vector<extent> r{0};
  for (const axis_stride& a : axes) {
    vector<extent> more;
    more.reserve(r.size() * a.length);
    for (const extent base : r)
      for (extent i = 0; i < a.length; ++i) more.push_back(base + i * a.stride);
    r = std::move(more);
  }
  return r;
}

// Consecutive steps that make each row from the same row of what they read. Several threads can
// share the rows.
struct row_range {
  extent first, end;  // of a list of steps
  extent least;       // rows that are worth to be handed to another thread

  // A few parts for each thread, because threads are interrupted.
  extent parts(extent rows, extent threads) const {
    constexpr extent each = 4;
    return threads == 1 ? 1 : std::clamp<extent>(rows / least, 1, each * threads);
  }
  bool operator==(const row_range&) const = default;
};

struct loop_step {  // `length` units in chunks
  char label = 0;
  extent length = 0, chunk = 0;
  vector<step> body;
  vector<row_range> shared{};  // of the body

  void list_accesses(auto& to) const;
};

// For each expert, the rows of its tokens in chunks. It sets c to 0 first, and c is complete after
// it.
struct group_step {
  std::string text;
  view selection, c;
  extent experts = 0, keep = 0, columns = 0;
  extent rows = 0;     // rows of a chunk
  extent scratch = 0;  // the offset in the arena of the lists of tokens
  vector<step> body;   // its last step puts the results
  vector<epilogue> epilogues{};

  void list_accesses(auto& to) const;
};

void loop_step::list_accesses(auto& to) const {
  for (const step& inner : body) to.add(inner);
}
void group_step::list_accesses(auto& to) const {
  to.read(selection);
  for (const step& inner : body) to.add(inner);
  to.read_others(epilogues);
  to.write(c);
}

// Returns the elements that the lists of a group take: a start and a place for each expert, and
// token and position of each selected entry.
constexpr extent group_scratch(extent experts, extent keep, extent tile, extent element_bytes) {
  return divide_up((2 * experts + 1 + 2 * tile * keep) * sizeof(std::uint32_t), element_bytes);
}

// Threads share a group whose tokens select so many experts: each expert is one thread's. Fewer
// experts would end at too different times.
constexpr bool shares_experts(double busy, extent threads) {
  return threads > 1 && busy >= 3 * static_cast<double>(threads);
}

}  // namespace fmoe::plan
