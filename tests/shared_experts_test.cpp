// SPDX-License-Identifier: MIT
// Threads that share the experts of a group make the same bits as one thread.
#include <fmoe/aoe.hpp>
#include <fmoe/moe.hpp>

#include "support/agree.hpp"
#include "support/plans.hpp"
#include "support/same_bits.hpp"
#include "support/threads.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent width = 48, experts = 24, tokens = 200;

template <class T>
aoe<T> layer_of(extent inner = 9, extent wide = 70) {
  aoe<T> layer;
  layer.down = random<parameter<T, 3>>({width, experts, inner}, 1, 0.3f);
  layer.up = random<parameter<T, 3>>({experts, inner, wide}, 2, 0.3f);
  layer.linear = random<parameter<T, 3>>({experts, width, wide}, 3, 0.3f);
  layer.output = random<parameter<T, 3>>({experts, wide, width}, 4, 0.3f);
  layer.route.active = 3;
  return layer;
}

plan_shape one_tile(extent group_rows) { return {.tile = tokens, .group_rows = group_rows}; }

// Compares calls of all lengths on several threads with one thread.
template <class T>
void check_threads(const auto& layer) {
  const auto all_rows = random<tensor<T, 2>>({tokens, width}, 7);
  for (const extent count : {tokens, tokens - 1, extent{20}, extent{1}}) {
    tensor<T, 2> x({count, width});
    std::copy_n(all_rows.data(), x.size(), x.data());
    const tensor<T, 2> expected = compile(layer, tokens, {.threads = 1})(x);
    for (const extent threads : {extent{2}, extent{4}, extent{8}})
      for (const extent group_rows : {extent{3}, extent{96}})
        on_threads(static_cast<int>(threads), [&] {
          INFO(count << " tokens, " << threads << " threads, by " << group_rows);
          const auto shared =
              compile(layer, tokens, {.threads = threads, .shape = one_tile(group_rows)});
          for (int run = 0; run < 5; ++run) CHECK(same_bits(shared(x), expected));
        });
  }
}

TEST_CASE("threads share experts", "[threads]") {
  auto layer = layer_of<float>();
  check_threads<float>(layer);
  layer.bias = random<parameter<float, 1>>({width}, 8);
  layer.route.weights = weighting::score;
  check_threads<float>(layer);
  check_threads<double>(layer_of<double>());
  check_threads<float>([=](const auto& x) { return layer(relu(layer(x)) + x); });
  layer.route.how = routing::by::top_p;
  check_threads<float>(layer);
  layer.route.how = routing::by::expert_choice;
  check_threads<float>(layer);
}

TEST_CASE("a plan keeps the rows of all experts where threads are to share these", "[threads]") {
  // The storages of a plan, with a row for each entry of a list and with those of one chunk.
  const auto plan_of = [](extent threads, extent tile, const aoe<float>& layer) {
    ir::graph g;
    const ir::node_id y = layer(tensor<float, 2>({tokens, width})).lower(g);
    planner::plan_options how = machine_options();
    how.threads = threads;
    how.shape = one_tile(3);
    how.shape.tile = tile;
    return make_plan(g, y, tokens, how);
  };
  const auto listed = [](const plan::step_plan& p) {
    return std::ranges::count(p.storages, true, &plan::storage_row::listed);
  };
  const auto layer = layer_of<float>();
  const plan::step_plan alone = plan_of(1, tokens, layer), shared = plan_of(2, tokens, layer);
  CHECK(listed(alone) == 0);
  CHECK(listed(shared) == 1);
  for (const plan::storage_row& list : shared.storages) {
    if (!list.listed) continue;
    const extent end = list.offset + 3 * tokens * list.stride;
    CHECK(end <= shared.arena);
    for (const plan::storage_row& chunk : shared.storages)
      if (chunk.in_group)
        CHECK((chunk.offset >= end || chunk.offset + 3 * chunk.stride <= list.offset));
  }
  CHECK(cpu::tile_count(shared, tokens, 2) == 1);
  CHECK(listed(plan_of(2, tokens / 2, layer)) == 0);  // each thread has a tile
  CHECK(listed(plan_of(9, tokens, layer)) == 0);      // too few experts
  auto dense = layer;
  dense.route.active = experts;
  dense.route.how = routing::by::top_p;
  CHECK(listed(plan_of(2, tokens, dense)) == 0);  // too many rows
}

}  // namespace
