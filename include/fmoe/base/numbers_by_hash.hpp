// SPDX-License-Identifier: MIT
// The numbers of things in a list, by hashes of the things, so that an equal one is found without
// looking at all of them. Equal things must have equal hashes.
#pragma once

#include <optional>

#include <fmoe/base/vector.hpp>

namespace fmoe::detail {

// Adds x to a hash of what comes before it.
constexpr extent mixed(extent hash, extent x) {
  hash = (hash ^ x) * extent{0x9e3779b97f4a7c15};
  return hash ^ hash >> 32;
}

class numbers_by_hash {
 public:
  // Adds the next number, from 0 on.
  void add(extent hash) {
    hashes_.push_back(hash);
    if (hashes_.size() <= last_.size()) return link(hashes_.size() - 1);
    last_ = vector<extent>(2 * last_.size() + 16, none);
    before_.clear();
    for (extent k = 0; k < hashes_.size(); ++k) link(k);
  }

  // Returns the first number that has this hash and fits.
  template <class Fits>
  std::optional<extent> find(extent hash, const Fits& fits) const {
    std::optional<extent> found;
    if (last_.empty()) return found;
    for (extent k = last_[hash % last_.size()]; k != none; k = before_[k])
      if (hashes_[k] == hash && fits(k)) found = k;
    return found;
  }

 private:
  static constexpr extent none = ~extent{0};

  void link(extent k) {
    extent& last = last_[hashes_[k] % last_.size()];
    before_.push_back(last);
    last = k;
  }

  // The numbers whose hashes have one remainder are a chain: its last number, and for each number
  // the one before it.
  vector<extent> hashes_, last_, before_;
};

}  // namespace fmoe::detail
