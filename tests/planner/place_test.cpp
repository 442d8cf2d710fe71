// SPDX-License-Identifier: MIT
#include <fmoe/plan/place.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

extent arena_bytes(const plan::step_plan& p) { return p.arena * 4; }

TEST_CASE("MxD of GPT-2's size: the plan of the design, in under 1 MB", "[place][plan]") {
  blueprint g;
  const plan::step_plan p =
      make_plan(g, mxd_graph(g, 128, 768, 3072, 21490, 768, 32), 128, machine_options());
  CHECK(describe(p) == lines{
                           "loop n 21490 by 768",
                           "  gemm ti,in->tn | + | relu",
                           "  top_k tn->tn",
                           "loop h 3072 by 768",
                           "  gemm ti,ih->th | + | gelu",
                           "  gemm th,ho->to +=",
                           "gather tn,no->to | * | +",
                       });
  CHECK(arena_bytes(p) < 1 << 20);
  CHECK(placement_is_sound(p));
  CHECK(p.prologue.empty());
  CHECK(p.weights.size() == 3);
  CHECK(p.tokens);
  CHECK(p.results[0].shape == extents{768});

  const auto& scores = get<plan::loop_step>(p.steps[0]);
  const auto& gate_product = get<plan::gemm_step>(scores.body[0]);
  CHECK(gate_product.K == 768);
  CHECK(gate_product.N == 21490);
  CHECK(gate_product.n_step == 1);
  CHECK(gate_product.k_step == 0);
  CHECK(gate_product.c.step == 0);                   // a chunk stands still
  CHECK(gate_product.epilogues[0].other.step == 1);  // the bias moves along
  CHECK(get<plan::select_step>(scores.body[1]).keep == 32);
  const auto& decode = get<plan::gemm_step>(get<plan::loop_step>(p.steps[1]).body[1]);
  CHECK(decode.k_step == 1);
  CHECK(decode.n_step == 0);
  CHECK(!decode.accumulate);
  const auto& gather = get<plan::gather_step>(p.steps[2]);
  CHECK(gather.keep == 32);
  CHECK(gather.epilogues[0].other.storage == decode.c.storage);
  CHECK(p.storages[gather.c.storage].where == plan::storage_row::kind::output);
  CHECK(p.storages[gate_product.c.storage].stride == 768);  // a chunk's rows only
}

TEST_CASE("values that are never alive together share memory", "[place]") {
  blueprint g;
  ir::node_id x = g.tensor({96, 64});
  for (int i = 0; i < 10; ++i) x = g.softmax(g.linear(x, 64, 64));
  const plan::step_plan p = make_plan(g, x, 96, machine_options());
  CHECK(placement_is_sound(p));
  CHECK(p.arena == 2 * 64 * 96);
}

TEST_CASE("the largest value is placed first, and each as low as those before it leave room",
          "[place]") {
  struct life {
    extent from, to, size, begin;
  };
  blueprint g;
  std::vector<ir::node_id> made{g.tensor({96, 64})};
  for (extent i = 0; i < 30; ++i) {
    const extent width = 16 * (1 + i * 7 % 11);
    const ir::node_id next = g.linear(made.back(), g.shape(made.back()).back(), width);
    const ir::node_id earlier =
        g.linear(made[i * 5 % made.size()], g.shape(made[i * 5 % made.size()]).back(), width);
    made.push_back(g.softmax(g.multiply(g.softmax(next), g.softmax(earlier))));
  }
  const auto how = machine_options();
  const planner::program p = planned(g, made.back(), how);
  const plan::placement places = plan::placed(p, how, {}, 96);
  std::vector<life> lives;
  for (const planner::value_id v : p.values.ids()) {
    life l{all, 0, 96 * places.rows[v].width, places.rows[v].offset};
    for (extent k = 0; k < p.operations.size(); ++k) {
      const planner::operation& o = p.operations[k];
      if (o.out.value != v && p.reads(o, v) == 0) continue;
      l.from = std::min(l.from, k);
      l.to = k;
    }
    if (l.size != 0) lives.push_back(l);
  }
  std::ranges::stable_sort(lives, std::ranges::greater(), &life::size);
  for (extent i = 0; i < lives.size(); ++i) {
    const life& l = lives[i];
    const auto is_free = [&](extent begin) {
      return std::ranges::none_of(
          lives.begin(), lives.begin() + std::ptrdiff_t(i), [&](const life& other) {
            return l.from <= other.to && other.from <= l.to && begin < other.begin + other.size &&
                   other.begin < begin + l.size;
          });
    };
    extent lowest = 0;
    while (!is_free(lowest)) lowest += 16;  // all are whole cache lines
    CHECK(l.begin == lowest);
  }
  CHECK(lives.size() > 60);
}

TEST_CASE("a value lives to its last reader", "[place]") {
  blueprint g;
  const ir::node_id x = g.tensor({96, 64}), first = g.softmax(g.linear(x, 64, 64));
  ir::node_id y = first;
  for (int i = 0; i < 5; ++i) y = g.softmax(g.linear(y, 64, 64));
  const plan::step_plan p =
      make_plan(g, g.softmax(g.einsum("ti,tj->tij", {first, y})), 96, machine_options());
  CHECK(placement_is_sound(p));
}

TEST_CASE("a streaming loop counts as one moment", "[place]") {
  blueprint g;
  const ir::node_id x = g.tensor({96, 64}), a = g.softmax(g.linear(x, 64, 64));
  // The first operation of the loop reads a; b is made between it and the end of the loop.
  const ir::node_id wide = g.relu(g.linear(a, 64, 3000)), b = g.softmax(g.linear(x, 64, 48)),
                    y = g.linear(wide, 3000, 48);
  const plan::step_plan p = make_plan(g, g.softmax(g.multiply(b, y)), 96, machine_options());
  CHECK(placement_is_sound(p));
  const auto loop = std::ranges::find_if(
      p.steps, [](const plan::step& s) { return holds_alternative<plan::loop_step>(s); });
  REQUIRE(loop != p.steps.end());
}

TEST_CASE("a sum that goes on shares the place of what it continues", "[place]") {
  blueprint g;
  const ir::node_id x = g.tensor({96, 64});
  const ir::node_id y = g.linear(x, 64, 64), z = g.softmax(g.add(y, g.linear(x, 64, 64)));
  const plan::step_plan p = make_plan(g, z, 96, machine_options());
  CHECK(describe(p) == lines{"gemm ti,io->to", "gemm ti,io->to +=", "softmax to->to"});
  const auto c = [&](extent i) { return p.storages[get<plan::gemm_step>(p.steps[i]).c.storage]; };
  CHECK(c(0).offset == c(1).offset);
  CHECK(c(0).stride == c(1).stride);
  CHECK(placement_is_sound(p));

  blueprint h;
  const ir::node_id u = h.tensor({96, 64});
  const plan::step_plan direct =
      make_plan(h, h.add(h.linear(u, 64, 64), h.linear(u, 64, 64)), 96, machine_options());
  CHECK(direct.arena == 0);  // both into the output
}

TEST_CASE("rows start on cache lines and do not lie a multiple of 2 KB apart", "[place]") {
  for (const extent width :
       {extent{1}, extent{15}, extent{16}, extent{17}, extent{512}, extent{1000}, extent{1024}}) {
    blueprint g;
    const plan::step_plan p =
        make_plan(g, g.softmax(g.linear(g.tensor({8, 64}), 64, width)), 8, machine_options());
    const auto& row = p.storages[get<plan::gemm_step>(p.steps[0]).c.storage];
    CHECK(row.stride % 16 == 0);
    CHECK(row.stride >= width);
    CHECK(row.stride < width + 32);
    CHECK(row.stride % 512 != 0);
    CHECK(row.offset % 16 == 0);
  }
}

TEST_CASE("so do rows that are copied because the caller's are not plain", "[place]") {
  for (const extent width : {extent{512}, extent{1000}, extent{2048}}) {
    blueprint g;
    const plan::step_plan p = make_plan(
        g, g.softmax(g.linear(g.argument(0, {8, width}), width, width)), 8, machine_options());
    const auto& a = p.storages[get<plan::gemm_step>(p.steps[0]).a.storage];
    const auto& y = p.storages[get<plan::row_function_step>(p.steps[1]).c.storage];
    CHECK(a.where == plan::storage_row::kind::argument);
    CHECK(y.where == plan::storage_row::kind::output);
    for (const auto& row : {a, y}) {
      CHECK(row.elements == width);
      CHECK(row.stride >= width);
      CHECK(row.stride % 512 != 0);
    }
  }
}

TEST_CASE("selections take what their state needs, constants too", "[place]") {
  blueprint g;
  const ir::node_id a = g.top_k(g.softmax(g.tensor({8, 3, 20})), 5);
  const plan::step_plan p = make_plan(g, g.relu(a), 8, machine_options());
  const auto& state = p.storages[get<plan::select_step>(p.steps[1]).selection.storage];
  CHECK(state.stride == 3 * round_up(4 * 5 + 256, 16));
  CHECK(placement_is_sound(p));

  blueprint h;
  const plan::step_plan q = make_plan(h, h.top_k(h.parameter({3, 20}), 5), 3, machine_options());
  CHECK(q.constants >= 3 * round_up(4 * 5 + 256, 16) + 60);
}

TEST_CASE("layers of every shape are placed soundly", "[place]") {
  for (const planner::plan_options& o : {machine_options(), tiny_options()})
    for (const extent tokens : {extent{1}, extent{30}, extent{200}}) {
      blueprint g;
      CHECK(placement_is_sound(make_plan(g, mxd_graph(g, tokens, 64, 300, 500, 64, 8), tokens, o)));
      blueprint h;
      const ir::node_id x = h.tensor({tokens, 48}), a = h.softmax(h.linear(x, 48, 40));
      CHECK(placement_is_sound(make_plan(
          h,
          h.einsum("tn,pnq,ti,qis,sop->to", {a, h.parameter({4, 40, 4}), x,
                                             h.parameter({4, 48, 64}), h.parameter({64, 32, 4})}),
          tokens, o)));
      blueprint m;
      const ir::node_id z = m.tensor({tokens, 24}), g1 = m.tensor({tokens, 2, 16}),
                        g2 = m.tensor({tokens, 2, 16});
      const ir::node_id u = m.relu(
          m.add(m.einsum("td,dim->tim", {z, m.parameter({24, 16, 4})}), m.parameter({16, 4})));
      const ir::node_id x2 = m.einsum("tim,tpi,tpj->tjm", {u, g1, g2});
      CHECK(placement_is_sound(
          make_plan(m,
                    m.add(m.einsum("tjm,jmd->td", {x2, m.parameter({16, 4, 24})}),
                          m.einsum("tpj,jd->td", {g2, m.parameter({16, 24})})),
                    tokens, o)));
    }
}

}  // namespace
