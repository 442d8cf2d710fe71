// SPDX-License-Identifier: MIT
#include <fmoe/planner/cost.hpp>
#include <fmoe/planner/stages.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

struct linear_layer {
  blueprint g;
  ir::node_id x = g.argument(0, {600, 48}), dy = g.argument(1, {600, 40}),
              w = g.parameter({48, 40});
  ir::node_id dw = g.einsum("ti,to->io", {x, dy}), dx = g.einsum("to,io->ti", {dy, w});

  plan::step_plan planned(std::vector<ir::node_id> results) const {
    return make_plan(g, ir::node_list(std::move(results)), 600, machine_options());
  }
};

// "tiles 0 to 2": the stages of a plan, with the steps of each.
lines stages_of(const plan::step_plan& p) {
  lines r;
  for (const plan::stage& s : p.stages)
    r.push_back((s.per_call ? "call " : "tiles ") + std::to_string(s.first) + " to " +
                std::to_string(s.end));
  return r;
}

TEST_CASE("a sum over tokens is a stage of its own and reads what all tiles left", "[stages]") {
  const linear_layer l;
  const plan::step_plan p = l.planned({l.dw});
  CHECK(describe(p) == lines{"reduce ti->ti", "reduce to->to", "token_sum ti,to->io"});
  CHECK(stages_of(p) == lines{"tiles 0 to 2", "call 2 to 3"});
  CHECK(!p.results[0].per_token);
  CHECK(p.results[0].shape == extents{48, 40});
  CHECK(p.results[0].made_in == 1);
  CHECK(p.arena > 0);  // for blocks of tokens that a product of matrices reads
  CHECK(p.call >= 48 + 40);
  CHECK(placement_is_sound(p));
}

TEST_CASE("beside a sum over tokens a result is planned as it is alone", "[stages]") {
  const linear_layer l;
  const plan::step_plan alone = l.planned({l.dx});
  CHECK(describe(alone) == lines{"gemm to,io->ti"});
  for (const auto& results : {std::vector{l.dw, l.dx}, {l.dx, l.dw}}) {
    const plan::step_plan both = l.planned(results);
    CHECK(both.tokens);
    CHECK(both.tile == alone.tile);
    lines steps = describe(both);
    CHECK(std::erase(steps, "gemm to,io->ti") == 1);
    CHECK(steps == describe(l.planned({l.dw})));
    CHECK(stages_of(both) == lines{"tiles 0 to 3", "call 3 to 4"});
  }
}

TEST_CASE("several sums are one stage, what follows from them another", "[stages]") {
  linear_layer l;
  const ir::node_id bias = l.g.einsum("to->o", {l.dy}), size = l.g.einsum("io,io->", {l.dw, l.dw}),
                    y = l.g.relu(bias);
  const plan::step_plan p = l.planned({l.dw, y, size});
  CHECK(describe(p) == lines{"reduce ti->ti", "reduce to->to", "token_sum ti,to->io",
                             "token_sum to->o", "batched io,io->", "pointwise o->o | relu"});
  CHECK(stages_of(p) == lines{"tiles 0 to 2", "call 2 to 4", "call 4 to 6"});
}

TEST_CASE("rows may be made of a sum over tokens again", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), h = g.linear(x, 48, 40),
                    centred = g.add(h, g.map(pointwise::scale, -1.0 / 600, g.einsum("to->o", {h}))),
                    y = g.linear(centred, 40, 8);
  const plan::step_plan p = make_plan(g, y, 600, machine_options());
  CHECK(describe(p) == lines{"gemm ti,io->to", "token_sum to->o", "pointwise o->o | scale",
                             "pointwise to->to | +", "gemm ti,io->to"});
  CHECK(stages_of(p) == lines{"tiles 0 to 1", "call 1 to 2", "call 2 to 3", "tiles 3 to 5"});
  CHECK(placement_is_sound(p));
}

TEST_CASE("rows that only a later pass over the tokens reads outlive the first one", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), h = g.softmax(g.linear(x, 48, 40)),
                    s = g.einsum("to->o", {g.softmax(g.linear(x, 48, 40))});
  const plan::step_plan p = make_plan(g, g.add(h, s), 600, machine_options());
  CHECK(stages_of(p) == lines{"tiles 0 to 4", "call 4 to 5", "tiles 5 to 6"});
  CHECK(p.call >= 2 * 40);  // those and the ones that are summed
}

TEST_CASE("an einsum of several operands sums tokens as soon as only the sum is needed",
          "[stages]") {
  blueprint g;
  const ir::node_id x = g.tensor({600, 48}), dy = g.tensor({600, 40});
  const ir::node_id y = g.einsum("ti,to,op->ip", {x, dy, g.parameter({40, 300})});
  CHECK(describe(make_program(g, y, machine_options())) ==
        lines{"token_sum to,ti->io", "gemm io,op->ip"});
  const ir::node_id z = g.einsum("ti,io->o", {x, g.parameter({48, 30})});
  CHECK(describe(make_program(g, z, machine_options())) ==
        lines{"token_sum ti->i", "gemm i,io->o"});
}

TEST_CASE("a sum over tokens reads what each token selected, which is not made dense", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), dy = g.argument(1, {600, 40}),
                    a = g.top_k(g.linear(x, 48, 5000), 8);
  const ir::node_id gradient = g.einsum("tn,to->no", {a, dy}), uses = g.einsum("tn->n", {a});
  const plan::step_plan p =
      make_plan(g, ir::node_list(std::vector{gradient, uses}), 600, machine_options());
  CHECK(describe(p) == lines{"loop o 5000 by 736", "  gemm ti,io->to", "  top_k to->to",
                             "reduce to->to", "selection_sum tn,to->no", "selection_sum tn->n"});
  CHECK(describe(make_plan(g, g.einsum("to,tn->on", {dy, a}), 600, machine_options())).back() ==
        "selection_sum tn,to->on");
  CHECK(placement_is_sound(p));
  CHECK(p.call < 1000);
  const planner::program program =
      make_program(g, ir::node_list(std::vector{gradient}), machine_options());
  CHECK(planner::cost_of(program, 600, 4).multiply_adds == 48 * 5000 + 8 * 40);
}

TEST_CASE("a selection of many entries is summed as dense rows", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), dy = g.argument(1, {600, 40});
  const ir::node_id y = g.einsum("tn,to->no", {g.top_k(x, 30), dy});
  CHECK(describe(make_plan(g, y, 600, machine_options())).back() == "token_sum tn,to->no");
}

TEST_CASE("a result that a sum reads is kept for it and copied", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), h = g.linear(x, 48, 40),
                    s = g.einsum("to->o", {h});
  const plan::step_plan p = make_plan(g, ir::node_list(std::vector{h, s}), 600, machine_options());
  CHECK(describe(p) == lines{"gemm ti,io->to", "reduce to->to", "token_sum to->o"});
  CHECK(placement_is_sound(p));
}

TEST_CASE("a constant beside rows is a result of the call", "[stages]") {
  blueprint g;
  const ir::node_id x = g.argument(0, {600, 48}), w = g.parameter({48, 40});
  const plan::step_plan p =
      make_plan(g, ir::node_list(std::vector{g.relu(w), g.einsum("ti,io->to", {x, w})}), 600,
                machine_options());
  CHECK(describe(p) == lines{"once pointwise ab->ab | relu", "gemm ti,io->to", "reduce ab->ab"});
  CHECK(!p.results[0].per_token);
}

}  // namespace
