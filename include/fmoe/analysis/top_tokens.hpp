// SPDX-License-Identifier: MIT
// Finds the tokens on which each expert is strongest, over a stream of batches. Reading them helps
// to name an expert.
#pragma once

#include <cmath>
#include <vector>

#include <fmoe/analysis/token_batch.hpp>

namespace fmoe {

// Keeps k entries for each expert, in a heap of the best so far: 16 k n bytes. The order of entries
// is total, so the kept entries depend neither on the threads, nor on the split of the stream, nor
// on the order of the batches.
class top_tokens {
 public:
  struct entry {
    extent token;
    double value;
    bool operator==(const entry&) const = default;
  };

  // Throws shape_error if the bytes of k n entries do not fit 64 bits.
  top_tokens(extent experts, extent k)
      : k_(k),
        sizes_(experts),
        entries_(element_count(std::array{experts, k}, sizeof(entry))) {}

  // Adds a batch: values [t, n], any array; its first token has the number `first_token`. A value
  // of 0 belongs to an expert that is not active, and is never kept. Throws shape_error unless
  // there is a column for each expert.
  template <class A>
  void add(const A& values, extent first_token) {
    with_batch(values, sizes_.size(), [&](const auto& batch) {
      for_expert_blocks(k_ == 0 ? 0 : sizes_.size(), [&](extent first, extent end) {
        for (extent t = 0; t < batch.tokens; ++t)
          for (extent n = first; n < end; ++n)
            if (const entry e{first_token + t, batch(t, n)}; e.value != 0) keep(n, e);
      });
    });
  }

  // Returns the entries by descending value, the earlier token first among equals; NaN is the
  // greatest. Throws value_error if there is no such expert.
  std::vector<entry> of(extent expert) const {
    expects<value_error>(expert < sizes_.size(), "[top_tokens] there is no expert ", expert, " of ",
                         sizes_.size());
    const entry* first = entries_.data() + expert * k_;
    std::vector<entry> best(first, first + sizes_[expert]);
    std::ranges::sort_heap(best, is_better);
    return best;
  }

 private:
  static bool is_better(const entry& a, const entry& b) {
    const bool equal = a.value == b.value || (std::isnan(a.value) && std::isnan(b.value));
    return equal ? a.token < b.token : std::isnan(a.value) || a.value > b.value;
  }

  // The first entry of a heap is the worst.
  void keep(extent n, const entry& e) {
    entry *first = entries_.data() + n * k_, *end = first + sizes_[n];
    if (sizes_[n] == k_) {
      if (!is_better(e, *first)) return;
      std::pop_heap(first, end--, is_better);
    } else {
      ++sizes_[n];
    }
    *end = e;
    std::push_heap(first, end + 1, is_better);
  }

  extent k_;
  std::vector<extent> sizes_;
  std::vector<entry> entries_;
};

}  // namespace fmoe
