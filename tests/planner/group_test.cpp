// SPDX-License-Identifier: MIT
#include <fmoe/planner/group.hpp>

#include "../support/agree.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

constexpr extent experts = 8, inputs = 12, width = 20, outputs = 9;

struct operands {
  tensor<float, 2> x = random<tensor<float, 2>>({30, inputs}, 1);
  parameter<float, 2> router = random<parameter<float, 2>>({inputs, experts}, 2);
  parameter<float, 3> in = random<parameter<float, 3>>({experts, inputs, width}, 3);
  parameter<float, 3> out = random<parameter<float, 3>>({experts, width, outputs}, 4);

  auto chosen() const { return top_k(einsum<"ti,in->tn">(x, router), 2); }
  auto made() const { return einsum<"ti,niw->tnw">(x, in); }
  auto mixed(const auto& values) const { return einsum<"tn,tnw,nwo->to">(chosen(), values, out); }
};

template <class E>
lines steps(const E& e) {
  ir::graph g;
  const ir::node_id y = e.lower(g);
  lines all = describe(make_plan(g, y, 30, machine_options()));
  all.erase(all.begin(), all.begin() + 2);  // the router and its top-k
  return all;
}

const lines last{"  gemm tw,nwo->to", "  put to,tn->to"};

lines group(lines body) {
  body.insert(body.begin(), "group to,tn->to 2 of 8");
  body.insert(body.end(), last.begin(), last.end());
  return body;
}

TEST_CASE("what an expert makes is made for the tokens that chose it", "[group]") {
  const operands o;
  CHECK(agrees(o.mixed(relu(o.made()))));
  CHECK(steps(o.mixed(relu(o.made()))) == group({"  pick ta->ta", "  gemm ti,niw->tw | relu"}));
}

TEST_CASE("a bias of each expert moves with the expert, whatever its place among the axes",
          "[group]") {
  const operands o;
  const auto first = o.made() + random<parameter<float, 2>>({experts, width}, 5);
  CHECK(agrees(o.mixed(first)));
  CHECK(steps(o.mixed(first)) == group({"  pick ta->ta", "  gemm ti,niw->tw | +"}));
  const auto second =
      einsum<"ti,niw->twn">(o.x, o.in) + random<parameter<float, 2>>({width, experts}, 5);
  CHECK(agrees(einsum<"tn,twn,nwo->to">(o.chosen(), second, o.out)));
  const auto shared = o.made() * random<parameter<float, 1>>({width}, 6);
  CHECK(agrees(o.mixed(shared)));
  CHECK(steps(o.mixed(shared)) == group({"  pick ta->ta", "  gemm ti,niw->tw | *"}));
}

TEST_CASE("what somebody else reads too is made whole and picked from", "[group]") {
  const operands o;
  const auto up = random<parameter<float, 3>>({experts, width, width}, 5);
  const auto both = o.made();
  const auto y =
      o.mixed(relu(einsum<"tnv,nvw->tnw">(both, up))) + einsum<"tnw,nwo->to">(both, o.out);
  CHECK(agrees(y));
  const lines plan = steps(y);
  CHECK(std::ranges::count(plan, "  pick tab->tb") == 1);
  CHECK(std::ranges::count(plan, "  gemm tv,nvw->tw | relu") == 1);
}

TEST_CASE("what a group reads twice is made once, for the tokens that chose the expert",
          "[group]") {
  const operands o;
  const auto made = o.made();
  const auto gated = made * sigmoid(2 * made);
  CHECK(agrees(o.mixed(gated)));
  const lines plan = steps(o.mixed(gated));
  CHECK(std::ranges::count(plan, "  pick ta->ta") == 1);
  CHECK(std::ranges::count(plan, "  gemm ti,niw->tw") == 1);
  CHECK(std::ranges::none_of(plan, [](const auto& line) { return line.find("tnw") != line.npos; }));
}

TEST_CASE("rows of an expert are multiplied with the coefficient that chose it", "[group]") {
  const operands o;
  const auto a = o.chosen();
  const auto y = einsum<"tn,tnw,nwo->to">(a, relu(einsum<"tn,tnw->tnw">(a, o.made())), o.out);
  CHECK(agrees(y));
  CHECK(steps(y) == lines{"expand ta->ta", "group to,tn->to 2 of 8", "  pick ta->ta",
                          "  pick ta->t", "  gemm ti,niw->tw | * | relu", "  gemm tw,nwo->to",
                          "  put to,tn->to"});
  // An axis that only has the length of the experts' is not theirs.
  const auto other = random<parameter<float, 3>>({experts, inputs, experts}, 5);
  const auto square = einsum<"ti,niw->tnw">(o.x, other);
  CHECK(agrees(einsum<"tn,tnw,nwo->to">(a, square * einsum<"tnw->twn">(square),
                                        random<parameter<float, 3>>({experts, experts, 4}, 6))));
}

TEST_CASE("what is made without a sum over a weight is made whole and picked from", "[group]") {
  const operands o;
  const auto scale = einsum<"tw,n->tnw">(random<tensor<float, 2>>({30, width}, 6),
                                         random<parameter<float, 1>>({experts}, 7));
  CHECK(agrees(o.mixed(o.made() * scale)));
}

TEST_CASE("there is no group where nothing would be saved, or in the naive plan", "[group]") {
  const operands o;
  const auto given = random<tensor<float, 3>>({30, experts, width}, 5);
  CHECK(agrees(o.mixed(given)));
  for (const std::string& line : steps(o.mixed(given))) CHECK(!line.starts_with("group"));
  CHECK(agrees(einsum<"tn,tnw->tnw">(o.chosen(), relu(o.made()))));
  planner::plan_options naive;
  naive.naive = true;
  CHECK(agrees(o.mixed(relu(o.made())), {.naive = true}));
  ir::graph g;
  const ir::node_id y = o.mixed(relu(o.made())).lower(g);
  for (const std::string& line : describe(make_plan(g, y, 30, naive)))
    CHECK(!line.starts_with("group"));
}

TEST_CASE("a tile is large enough that each expert has rows", "[group]") {
  ir::graph g;
  operands o;
  o.x = tensor<float, 2>({5000, inputs});
  const ir::node_id y = o.mixed(relu(o.made())).lower(g);
  planner::plan_options how = machine_options();
  how.chooses_shape = true;
  CHECK(make_plan(g, y, 5000, how).tile >= 96);  // 24 rows for each of 8 experts
  operands many;
  many.x = o.x;
  many.router = parameter<float, 2>({inputs, 64});
  many.in = parameter<float, 3>({64, inputs, width});
  many.out = parameter<float, 3>({64, width, outputs});
  const ir::node_id z = many.mixed(relu(many.made())).lower(g);
  CHECK(make_plan(g, z, 5000, how).tile >= 4 * 96);
  CHECK(make_plan(g, z, 100, how).tile == 100);
  CHECK(make_plan(g, z, 5000, machine_options()).least_tile ==
        384);  // a second thread may halve the tile; both then read the experts' weights
  CHECK(make_plan(g, y, 5000, machine_options()).least_tile == 48);
}

}  // namespace
