// SPDX-License-Identifier: MIT
// Bounds of scores that ranks tell each other before they compute these in full. A rank has found
// some of its columns by a screen, which knows of each score that it is at least so great. The K-th
// greatest of the bounds of all ranks is one that K scores reach, so what is below is not selected.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <limits>
#include <vector>

#include <fmoe/backend/backend.hpp>
#include <fmoe/distributed/exchange_tokens.hpp>

namespace fmoe::detail {

// The bytes of a token that all ranks tell, if each tells so many bounds.
constexpr double bound_bytes(extent each) {
  return sizeof(float) * (static_cast<double>(each) + 1);
}

// The bounds of a call's rows, of all ranks' tokens. Each rank tells `each` of a row, of which
// `keep` are kept.
class told_bounds {
 public:
  told_bounds(communicator& ranks, const call_tokens& tokens, extent each, extent keep)
      : ranks_(ranks),
        tokens_(tokens),
        keep_(keep),
        lower_(tokens.all() * each, -std::numeric_limits<float>::infinity()),
        least_(tokens.all()),
        bounds_{each, lower_, least_, tell_} {}
  told_bounds(const told_bounds&) = delete;

  score_bounds& bounds() { return bounds_; }

  // Tells that this rank knows none, if no screen has asked. Throws what a call of ranks has thrown
  // while a kernel ran, which lets no exception pass.
  void finish() {
    if (!bounds_.is_told) tell();
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  void tell() noexcept {
    try {
      tell_owners();
    } catch (...) {
      thrown_ = std::current_exception();
      std::ranges::fill(least_, -std::numeric_limits<float>::infinity());
    }
  }

  // The bounds of a token go to its owner, which tells all ranks the K-th. One that is not above 0
  // says nothing, because a merge leaves out scores of 0, and may need those behind them.
  void tell_owners() {
    const extent each = bounds_.each, own = tokens_.own();
    std::vector<float> theirs(ranks_.size() * own * each), row(ranks_.size() * each), mine(own);
    ranks_.all_to_all(std::span<const float>(lower_), tokens_.times(each), std::span(theirs),
                      std::vector<extent>(ranks_.size(), own * each));
    for (extent t = 0; t < own; ++t) {
      for (extent r = 0; r < ranks_.size(); ++r)
        std::copy_n(theirs.data() + (r * own + t) * each, each, row.data() + r * each);
      const auto last = row.begin() + static_cast<std::ptrdiff_t>(keep_) - 1;
      std::nth_element(row.begin(), last, row.end(), std::greater());
      mine[t] = *last > 0 ? *last : -std::numeric_limits<float>::infinity();
    }
    ranks_.all_gather(std::span<const float>(mine), std::span(least_), tokens_.of_rank);
  }

  communicator& ranks_;
  const call_tokens& tokens_;
  extent keep_;
  std::vector<float> lower_, least_;
  std::function<void()> tell_ = [this] { tell(); };
  score_bounds bounds_;
  std::exception_ptr thrown_;
};

}  // namespace fmoe::detail
