// SPDX-License-Identifier: MIT
// Chooses the shape of a plan: the one whose time is predicted to be the least. All shapes have the
// same bits.
#pragma once

#include <fmoe/backend/cpu/schedule/predict.hpp>
#include <fmoe/backend/cpu/schedule/screened_rows.hpp>
#include <fmoe/backend/cpu/schedule/share.hpp>
#include <fmoe/plan/emit.hpp>
#include <fmoe/plan/screen.hpp>

namespace fmoe::cpu {

// A plan of one shape, with its predicted time.
struct shaped_plan {
  plan_shape shape;
  double seconds;
  step_plan made;
};

class shape_search {
 public:
  // The program's calls have up to p.token_count tokens.
  shape_search(const planner::program& p, const planner::plan_options& how)
      : program_(p),
        how_(how) {}

  step_plan with(const plan_shape& shape) const {
    planner::plan_options how = how_;
    how.shape = shape;
    planner::program p = program_;
    screen(p, how, p.token_count);
    gather_loops(p, how);
    step_plan made = emitter(p, tiling_of(p, how, p.token_count), how).take();
    read_screened_rows(made);
    share_rows(made, program_.leaves, how);
    return made;
  }

  // Returns plans of many shapes, the quickest first. One choice after the other is made with the
  // best of those before it.
  vector<shaped_plan> all() {
    plan_shape best = how_.shape;
    best.streamed = how_.on.l2 * 5 / 16;
    const vector<extent> tiles = tiles_to_try();
    if (tiles.size() == 1) best.tile = tiles.front();
    add(best);
    constexpr double short_call = 300e-6;  // seconds, of which a search would take too much
    if (tried_.front().seconds < short_call) return std::move(tried_);
    const auto try_each = [&](auto member, const auto& values) {
      for (const auto value : values) {
        plan_shape s = best;
        s.*member = value;
        add(s);
      }
      best = tried_.front().shape;
    };
    if (tiles.size() > 1) try_each(&plan_shape::tile, tiles);
    if (has<loop_step>()) try_each(&plan_shape::chunk, std::array<extent, 2>{1536, 3072});
    if (has<group_step>()) try_each(&plan_shape::group_rows, std::array<extent, 3>{192, 384, 768});
    if (has<screen_step>()) try_each(&plan_shape::screen, std::array{false});
    return std::move(tried_);
  }

 private:
  // Even parts of the tokens. One thread does not split few tokens: on no machine that was measured
  // did it gain.
  vector<extent> tiles_to_try() const {
    constexpr extent most = 1024, few = 192;
    const extent tokens = program_.token_count;
    if (how_.threads == 1 && tokens > 0 && tokens <= few) return {tokens};
    vector<extent> tiles;
    for (extent parts = 1; parts <= tokens; parts += std::max<extent>(1, parts / 3)) {
      const extent tile = divide_up(tokens, parts);
      if (tile > most) continue;
      tiles.push_back(tile);
      if (tile <= 2 * how_.on.kernel_rows) break;
    }
    if (tiles.empty()) tiles.push_back(1);
    return tiles;
  }

  // Does the best plan so far have such a step?
  template <class Kind>
  bool has() const {
    return tried_.front().made.has<Kind>();
  }

  // Adds the plan of a shape, unless it was tried before. A tile has no more rows than a call, and
  // an expert no more than a tile.
  void add(plan_shape shape) {
    shape.tile = std::min(shape.tile, std::max<extent>(1, program_.token_count));
    shape.group_rows = std::min(shape.group_rows, shape.tile);
    if (std::ranges::count(tried_, shape, &shaped_plan::shape) > 0) return;
    shaped_plan next{shape, 0, with(shape)};
    next.seconds =
        prediction(next.made, program_.leaves, how_.on, how_.element_bytes, how_.threads).seconds();
    const auto slower = std::ranges::find_if(
        tried_, [&](const shaped_plan& other) { return next.seconds < other.seconds; });
    tried_.insert(slower, std::move(next));
  }

  const planner::program& program_;
  const planner::plan_options& how_;
  vector<shaped_plan> tried_;
};

}  // namespace fmoe::cpu
