// SPDX-License-Identifier: MIT
// What steps have of variable length, in device memory: the positions of products, and the pairs
// that masked sums leave out. Uploaded once.
#pragma once

#include <map>

#include <fmoe/backend/cuda/kernels/gemm.hpp>
#include <fmoe/backend/cuda/kernels/group.hpp>
#include <fmoe/backend/cuda/kernels/product_choice.hpp>
#include <fmoe/backend/cuda/memory.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/plan/plan.hpp>

namespace fmoe::cuda {

template <class Device>
class step_lists {
 public:
  struct pair_lists {
    const index *groups, *ends, *left_out;
  };

  step_lists(const step_plan& p, const Device& on, typename Device::queue& q) {
    add(p);
    positions_ = std::make_unique<device_array<Device, gemm_position>>(on, all_positions_.size());
    indices_ = std::make_unique<device_array<Device, index>>(on, all_indices_.size());
    q.copy_in(positions_->data(), all_positions_.data(),
              all_positions_.size() * sizeof(gemm_position));
    q.copy_in(indices_->data(), all_indices_.data(), all_indices_.size() * sizeof(index));
    q.wait();
  }

  // The positions of a product, and numbers with every bit that an offset of one has.
  struct position_list {
    const gemm_position* list;
    extent count, of_a, of_c;
  };
  position_list positions(const gemm_step& s) const {
    const extent first = first_.at(&s);
    position_list found{positions_->data() + first, s.rows.size(), 0, 0};
    for (extent i = 0; i < s.rows.size(); ++i) {
      found.of_a |= s.rows[i].a;
      found.of_c |= s.rows[i].c;
    }
    return found;
  }
  position_list positions(const screen_step& s) const {
    return {positions_->data() + first_.at(&s), 1, 0, 0};
  }
  pair_lists pairs(const exclude_step& s) const {
    const index* const groups = indices_->data() + first_.at(&s);
    return {groups, groups + s.groups.size(), groups + s.groups.size() + s.ends.size()};
  }

  // The indices that a caller needs to sort the entries of a group.
  extent sorted() const { return sorted_; }

  // The same for a plan, and the bytes of its lists.
  static extent sorted_of(const step_plan& p) { return step_lists(p).sorted_; }
  static extent bytes(const step_plan& p) {
    const step_lists lists(p);
    return lists.all_positions_.size() * sizeof(gemm_position) +
           lists.all_indices_.size() * sizeof(index);
  }

 private:
  explicit step_lists(const step_plan& p) { add(p); }

  void add(const step_plan& p) {
    for (const auto* steps : {&p.prologue, &p.steps}) add(*steps, p, p.tile);
  }
  void add(const vector<step>& steps, const step_plan& p, extent tile) {
    for (const step& s : steps) {
      if (const auto* gemm = get_if<gemm_step>(&s)) {
        first_[gemm] = all_positions_.size();
        for (const auto& r : gemm->rows) all_positions_.push_back({r.a, r.c, r.weight});
      }
      if (const auto* screen = get_if<screen_step>(&s)) {
        first_[screen] = all_positions_.size();
        all_positions_.push_back({});
      }
      if (const auto* exclude = get_if<exclude_step>(&s)) {
        first_[exclude] = all_indices_.size();
        for (const auto* list : {&exclude->groups, &exclude->ends, &exclude->left_out})
          for (const extent n : *list) all_indices_.push_back(static_cast<index>(n));
      }
      if (const auto* group = get_if<group_step>(&s)) {
        need(tile, group->keep, group->experts);
        add(group->body, p, tile);
      }
      if (const auto* sum = get_if<selection_sum_step>(&s))
        need(p.token_count, sum->keep, sum->experts);
    }
  }

  void need(extent tokens, extent keep, extent experts) {
    sorted_ = std::max(sorted_, sort_places{tokens, keep, experts, few_tile_rows}.size());
  }

  std::map<const void*, extent> first_;  // of the list of a step
  vector<gemm_position> all_positions_;
  vector<index> all_indices_;
  std::unique_ptr<device_array<Device, gemm_position>> positions_;
  std::unique_ptr<device_array<Device, index>> indices_;
  extent sorted_ = 0;
};

}  // namespace fmoe::cuda
