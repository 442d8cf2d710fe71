// SPDX-License-Identifier: MIT
// What steps have of variable length, in device memory: the positions of products, and the pairs
// that masked sums leave out. Uploaded once.
#pragma once

#include <map>
#include <vector>

#include <fmoe/backend/cpu/plan/plan.hpp>
#include <fmoe/backend/cuda/kernels/gemm.hpp>
#include <fmoe/backend/cuda/kernels/group.hpp>
#include <fmoe/backend/cuda/memory.hpp>

namespace fmoe::cuda {

// Rows of a tile of a group's products.
inline constexpr extent group_tile_rows = 64;

template <class Device>
class step_lists {
 public:
  struct pair_lists {
    const index *groups, *ends, *left_out;
  };

  step_lists(const cpu::plan& p, const Device& on, typename Device::queue& q) {
    for (const auto* steps : {&p.prologue, &p.steps}) add(*steps, p, p.tile);
    positions_ = std::make_unique<device_array<Device, gemm_position>>(on, all_positions_.size());
    indices_ = std::make_unique<device_array<Device, index>>(on, all_indices_.size());
    q.copy_in(positions_->data(), all_positions_.data(),
              all_positions_.size() * sizeof(gemm_position));
    q.copy_in(indices_->data(), all_indices_.data(), all_indices_.size() * sizeof(index));
    q.wait();
  }

  const gemm_position* positions(const cpu::gemm_step& s) const {
    return positions_->data() + first_.at(&s);
  }
  const gemm_position* positions(const cpu::screen_step& s) const {
    return positions_->data() + first_.at(&s);
  }
  pair_lists pairs(const cpu::exclude_step& s) const {
    const index* const groups = indices_->data() + first_.at(&s);
    return {groups, groups + s.groups.size(), groups + s.groups.size() + s.ends.size()};
  }

  // The indices that a caller needs to sort the entries of a group.
  extent sorted() const { return sorted_; }

 private:
  void add(const std::vector<cpu::step>& steps, const cpu::plan& p, extent tile) {
    for (const cpu::step& s : steps) {
      if (const auto* gemm = get_if<cpu::gemm_step>(&s)) {
        first_[gemm] = all_positions_.size();
        for (const auto& r : gemm->rows) all_positions_.push_back({r.a, r.c, r.weight});
      }
      if (const auto* screen = get_if<cpu::screen_step>(&s)) {
        first_[screen] = all_positions_.size();
        all_positions_.push_back({});
      }
      if (const auto* exclude = get_if<cpu::exclude_step>(&s)) {
        first_[exclude] = all_indices_.size();
        for (const auto* list : {&exclude->groups, &exclude->ends, &exclude->left_out})
          for (const extent n : *list) all_indices_.push_back(static_cast<index>(n));
      }
      if (const auto* group = get_if<cpu::group_step>(&s)) {
        need(tile, group->keep, group->experts);
        add(group->body, p, tile);
      }
      if (const auto* sum = get_if<cpu::selection_sum_step>(&s))
        need(p.token_count, sum->keep, sum->experts);
    }
  }

  void need(extent tokens, extent keep, extent experts) {
    sorted_ = std::max(sorted_, sort_places{tokens, keep, experts, group_tile_rows}.size());
  }

  std::map<const void*, extent> first_;  // of the list of a step
  std::vector<gemm_position> all_positions_;
  std::vector<index> all_indices_;
  std::unique_ptr<device_array<Device, gemm_position>> positions_;
  std::unique_ptr<device_array<Device, index>> indices_;
  extent sorted_ = 0;
};

}  // namespace fmoe::cuda
