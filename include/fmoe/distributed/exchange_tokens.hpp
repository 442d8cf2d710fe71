// SPDX-License-Identifier: MIT
// The tokens of a call on the ranks of a job.
#pragma once

#include <numeric>
#include <vector>

#include <fmoe/distributed/sharded.hpp>

namespace fmoe::detail {

// The tokens of a call: those of each rank lie behind those of the ranks before it.
struct call_tokens {
  std::vector<extent> of_rank;
  extent rank;

  extent own() const { return of_rank[rank]; }
  extent first() const { return first(rank); }
  extent first(extent r) const {
    return std::accumulate(of_rank.begin(), of_rank.begin() + static_cast<std::ptrdiff_t>(r),
                           extent{0});
  }
  extent all() const { return first(of_rank.size()); }
  // The tokens of one of several spans: a part of each rank's, of about equal size.
  call_tokens span(extent i, extent spans) const {
    call_tokens part{{}, rank};
    for (const extent n : of_rank)
      part.of_rank.push_back(begin_of_part(n, spans, i + 1) - begin_of_part(n, spans, i));
    return part;
  }
  // A number of elements for each rank, in proportion to its tokens.
  std::vector<extent> times(extent n) const {
    std::vector<extent> counts = of_rank;
    for (extent& c : counts) c *= n;
    return counts;
  }
};

}  // namespace fmoe::detail
