// SPDX-License-Identifier: MIT
// The ways to make each kind of node over ranks, and where a value can come to lie. A way that is
// wrong is cheaper than the right ones in few layers only, so results alone do not show it.
#include <fmoe/distributed/placement.hpp>

#include "../support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::detail;
using enum spread;

// x [t, 12] and scores x gate [t, 40], whose axis of 40 is cut over 4 ranks.
struct cut_graph {
  ir::graph g;
  ir::node_id x = g.leaf({nullptr, dtype::float32, {8, 12}, false, 0}), gate = weights({12, 40}),
              scores = g.einsum("ti,in->tn", {x, gate});

  ir::node_id weights(std::vector<extent> shape) {
    return g.leaf(
        {std::make_shared<storage>(element_count(shape) * 4), dtype::float32, shape, true});
  }
  // The roots must outlive it.
  placement_problem problem(const ir::node_list& roots) const {
    axis_list axes(g.size());
    for (const ir::node_id id : g.ids()) {
      for (extent k = 0; k < g.rank(id); ++k) {
        if (g.same(g[id].axes[k], g[x].axes[0])) axes[id].token = k;
        if (!g.same(g[id].axes[k], g[gate].axes[1])) continue;
        axes[id].has_two_labels |= axes[id].label.has_value();
        axes[id].label = k;
      }
      ir::each_operand(g[id], [&](ir::node_id o) {
        axes[id].is_sum |= !axes[id].token && (axes[o].token || axes[o].is_sum);
      });
    }
    return {g, roots, {tokens}, axes, 4, 4, {}, sparse_values(g, roots, axes)};
  }
  // Returns where a node can be made; what is merged has a mark.
  std::string ways(ir::node_id id) const {
    const ir::node_list roots(id);
    return ways(problem(roots), id);
  }
  static std::string ways(const placement_problem& p, ir::node_id id) {
    std::string found;
    for (const making& m : making_list(p, id).take())
      found += std::string(found.empty() ? "" : " ") + name(m.out) + (m.merges ? "*" : "");
    return found;
  }
  static const char* name(spread s) {
    constexpr const char* names[] = {"whole",  "tokens",       "label",         "partial",
                                     "routed", "routed_label", "routed_partial"};
    return names[static_cast<extent>(s)];
  }
};

const selection_rule best{selection_rule::kind::top_k, 5};

TEST_CASE("a selection is merged over parts if its entries decide all that it needs") {
  cut_graph c;
  CHECK(c.ways(c.g.select(best, c.scores)) == "whole tokens label*");
  selection_rule normalized = best, zeros = best, few = best;
  normalized.weights = weighting::normalized;
  CHECK(c.ways(c.g.select(normalized, c.scores)) == "whole tokens");
  zeros.keeps_zeros = true;
  CHECK(c.ways(c.g.select(zeros, c.scores)) == "whole tokens");
  few.keep = 0;
  CHECK(c.ways(c.g.select(few, c.scores)) == "whole tokens");
  const auto ranked = c.g.map(pointwise::relu, 0, c.scores);
  CHECK(c.ways(c.g.select(best, c.scores, ranked)) == "whole tokens");
  const auto heads = c.g.einsum("ti,ihn->thn", {c.x, c.weights({12, 3, 40})});
  cut_graph h;
  const auto of_heads = h.g.einsum("tn,hn->thn", {h.scores, h.weights({3, 40})});
  CHECK(h.ways(h.g.select(best, of_heads)) == "whole tokens");
  CHECK(h.ways(of_heads) == "whole tokens label partial");
  CHECK(c.ways(heads) == "whole tokens partial");  // another axis of 40 is not cut
}

TEST_CASE("a choice of experts, and rows that are needed whole") {
  cut_graph c;
  CHECK(c.ways(c.g.select({selection_rule::kind::expert_choice, 2}, c.scores)) == "whole");
  CHECK(c.ways(c.g.make(ir::row_function_node{row_function::best_groups, 2, c.scores, {}, {8}})) ==
        "whole tokens");
  CHECK(c.ways(c.g.map_rows(row_function::group_max, 8, c.scores)) == "whole tokens");
  CHECK(c.ways(c.g.map_rows(row_function::sparse_mixer, 0.1, c.scores)) == "whole tokens");
  CHECK(c.ways(c.g.map_rows(row_function::softmax, 0, c.scores)) == "whole tokens label*");
  CHECK(c.ways(c.g.norm(row_norm::l2, c.scores)) == "whole tokens whole*");
  const auto rows = c.g.einsum("tn,no->to", {c.scores, c.weights({40, 12})});
  CHECK(c.ways(c.g.concat({c.scores, rows}, 1)) == "whole tokens");
  CHECK(c.ways(c.g.concat({c.scores, c.scores}, 1)) == "whole tokens");
  CHECK(c.ways(c.g.slice(c.scores, 1, 3, 5)) == "whole tokens");
}

TEST_CASE("what is linear is made of parts of sums") {
  cut_graph c;
  const auto sum = c.g.einsum("tn,no->to", {c.scores, c.weights({40, 12})});
  CHECK(c.ways(sum) == "whole tokens partial partial");
  CHECK(c.ways(c.g.map(pointwise::scale, 2, sum)) == "whole tokens partial");
  CHECK(c.ways(c.g.map(pointwise::negate, 0, sum)) == "whole tokens partial");
  CHECK(c.ways(c.g.map(pointwise::relu, 0, sum)) == "whole tokens");
  CHECK(c.ways(c.g.add(sum, c.x)) == "whole tokens partial");
  CHECK(c.ways(c.g.add(sum, c.weights({12}))) == "whole tokens");  // each rank would add it
  CHECK(c.ways(c.g.max(sum, c.x)) == "whole tokens");
}

TEST_CASE("where a value can come to lie") {
  cut_graph c;
  const auto sum = c.g.einsum("tn,no->to", {c.scores, c.weights({40, 12})});
  const ir::node_list roots(sum);
  const placement_problem p = c.problem(roots);
  const auto moves = [&](ir::node_id id, spread from, spread to) {
    return seconds_to_move(p, id, from, to).has_value();
  };
  CHECK(moves(sum, partial, whole));
  CHECK(moves(sum, partial, tokens));
  CHECK(!moves(sum, partial, label));
  CHECK(!moves(c.scores, partial, label));
  CHECK(moves(c.scores, tokens, label));
  CHECK(moves(c.scores, label, tokens));
  CHECK(!moves(sum, tokens, label));
  CHECK(!moves(sum, tokens, partial));
  CHECK(!moves(c.gate, label, whole));  // weights stay where they are
  CHECK(moves(c.gate, label, label));
  CHECK(moves(c.scores, whole, label));
  CHECK(!moves(sum, whole, label));
  CHECK(!moves(c.scores, tokens, routed_label));  // no token is routed
}

TEST_CASE("what is 0 but for a selection's entries, and what is read of these alone") {
  cut_graph c;
  const auto chosen = c.g.select(best, c.scores);
  const auto other = c.g.einsum("ti,in->tn", {c.x, c.gate});  // the scores themselves
  const auto values = c.g.map(pointwise::gelu, 0, c.scores);
  const auto product = c.g.einsum("tn,tn->tn", {chosen, values});
  const auto inverse = c.g.map(pointwise::inverse, 0, product);
  const auto half = c.g.map(pointwise::scale, 0.5, chosen);
  const ir::node_list roots(product), others(values);
  const placement_problem p = c.problem(roots), both = c.problem(others);
  CHECK(other == c.scores);
  CHECK(p.sparse.zero_but_for[chosen] == chosen);
  CHECK(p.sparse.zero_but_for[product] == chosen);
  CHECK(!p.sparse.zero_but_for[values]);
  CHECK(p.sparse.sampled_by[values] == chosen);
  CHECK(!p.sparse.sampled_by[c.scores]);  // the selection reads all of them
  CHECK(!p.sparse.zero_but_for[inverse]);
  CHECK(!both.sparse.sampled_by[values]);  // a result is read
  CHECK(p.sparse.zero_but_for[half] == chosen);
}

TEST_CASE("sums over tokens, and constants") {
  cut_graph c;
  const auto sum = c.g.einsum("ti,tn->in", {c.x, c.scores}),
             without = c.g.einsum("ti->i", {c.x});  // the label
  const ir::node_list roots(sum);
  const placement_problem p = c.problem(roots);
  CHECK(!p.is_constant(sum));
  CHECK(c.ways(c.g.map(pointwise::relu, 0, sum)) == "whole label");
  CHECK(c.ways(c.g.map(pointwise::scale, 2, sum)) == "whole tokens label partial");
  CHECK(c.ways(c.g.map(pointwise::relu, 0, c.gate)) == "whole label");
  CHECK(!seconds_to_move(p, sum, partial, whole));
  CHECK(seconds_to_end(p, sum, tokens, label));
  CHECK(!seconds_to_end(p, sum, whole, label));
  CHECK(!seconds_to_end(p, without, tokens, label));
  CHECK(seconds_to_end(p, without, tokens, whole));
}

TEST_CASE("what has the label twice is not cut") {
  cut_graph c;
  const auto outer = c.g.einsum("tn,tm->tnm", {c.scores, c.scores});
  const auto diagonal = c.g.einsum("tnm->tn", {outer});
  const ir::node_list roots(diagonal);
  CHECK(c.ways(outer).find("label") == std::string::npos);
  CHECK(c.ways(diagonal).find("label") == std::string::npos);
  CHECK(!seconds_to_move(c.problem(roots), outer, whole, label));
}

// Experts [12, 40, 6] of which each token selects some.
struct routed_graph : cut_graph {
  ir::node_id chosen, units, y;

  explicit routed_graph(extent keep = 5) {
    chosen = g.select({selection_rule::kind::top_k, keep}, scores);
    units = g.einsum("ti,inh->tnh", {x, weights({12, 40, 6})});
    y = g.einsum("tn,tnh->th", {chosen, units});
  }
  placement_problem routed(const ir::node_list& roots, spread at = tokens) const {
    placement_problem p = problem(roots);
    p.router.emplace(p.sparse, chosen, at);
    return p;
  }
};

// Returns where the operands must lie for each way to make a node so.
std::string operands(const placement_problem& p, ir::node_id id, spread out) {
  std::string found;
  for (const making& m : making_list(p, id).take()) {
    if (m.out != out) continue;
    found += found.empty() ? "" : " or ";
    for (extent k = 0; k < m.in.size(); ++k)
      found += std::string(k == 0 ? "" : ", ") + cut_graph::name(m.in[k]);
  }
  return found;
}

TEST_CASE("what is routed follows the selection of its tokens, and comes back as a sum") {
  routed_graph r;
  const auto bias = r.weights({40, 6});
  const auto square = r.g.map(pointwise::squared_relu, 0, bias);
  const auto biased = r.g.add(r.units, square);
  const auto sum = r.g.einsum("tn,tnh->th", {r.chosen, biased});
  const auto half = r.g.map(pointwise::scale, 0.5, sum);
  const auto last = r.g.add(half, r.y);
  const ir::node_list roots(last);
  const placement_problem p = r.routed(roots);
  CHECK(r.ways(p, r.x) == "tokens");
  CHECK(r.ways(p, r.scores) == "whole tokens label partial");  // the selection is made of it
  CHECK(r.ways(p, r.chosen) == "tokens");                      // the router is there
  CHECK(r.ways(p, r.units) == "whole tokens routed label routed_label routed_partial partial");
  CHECK(r.ways(p, bias) == "whole");
  CHECK(r.ways(p, square) == "whole label");  // a constant
  CHECK(operands(p, r.units, routed) == "routed, whole");
  CHECK(operands(p, r.units, routed_label) == "routed, label");
  CHECK(operands(p, r.units, routed_partial) == "routed_partial, whole");
  CHECK(operands(p, r.units, tokens) == "tokens, whole");
  CHECK(operands(p, biased, routed) == "routed, whole");
  CHECK(operands(p, biased, routed_label) == "routed_label, label");
  CHECK(operands(p, sum, routed_partial) ==
        "routed_label, routed_label or routed_partial, routed or routed, routed_partial");
  CHECK(operands(p, half, routed_partial) == "routed_partial");
  CHECK(operands(p, last, routed_partial) == "routed_partial, routed_partial");
}

TEST_CASE("where a value can come to lie for routed tokens") {
  routed_graph r;
  const ir::node_list roots(r.y);
  const placement_problem p = r.routed(roots);
  const auto moves = [&](ir::node_id id) {
    std::string found;
    for (extent i = 0; i < 49; ++i) {
      const auto from = static_cast<spread>(i / 7), to = static_cast<spread>(i % 7);
      if (from == to || !(is_routed(from) || is_routed(to))) continue;
      if (!seconds_to_move(p, id, from, to)) continue;
      found += std::string(found.empty() ? "" : ", ") + cut_graph::name(from) + " to " +
               cut_graph::name(to);
    }
    return found;
  };
  CHECK(moves(r.x) == "whole to routed, tokens to routed");
  CHECK(moves(r.units) ==
        "whole to routed, tokens to routed, tokens to routed_label, label to routed_label");
  CHECK(!seconds_to_move(p, r.chosen, tokens, routed));  // it is 0 elsewhere
  CHECK(seconds_to_move(p, r.chosen, tokens, routed_label));
  CHECK(moves(r.y) == "routed_partial to tokens");
  CHECK(moves(r.gate).empty());
}

TEST_CASE("what of a value travels") {
  routed_graph r, many(20);
  const auto behind = r.g.einsum("ti,ihn->thn", {r.x, r.weights({12, 6, 40})});
  const auto before = r.g.einsum("ti,inh->nth", {r.x, r.weights({12, 40, 6})});
  const auto between = r.g.einsum("ti,inh->hnt", {r.x, r.weights({12, 40, 6})});
  const auto other = r.g.select(best, r.g.map(pointwise::gelu, 0, r.scores));
  const auto sum = r.g.add(r.y, r.g.einsum("tn,thn->th", {r.chosen, behind}));
  const auto more = r.g.add(sum, r.g.einsum("tn,nth->th", {r.chosen, before}));
  const ir::node_list roots(r.g.add(more, r.g.einsum("tn,hnt->th", {r.chosen, between}))),
      roots_of_many(many.y);
  const placement_problem p = r.routed(roots), whole_router = r.routed(roots, whole),
                          q = many.problem(roots_of_many);
  CHECK(travel_of(p, r.chosen, tokens, routed_label) == travel::entries);
  CHECK(travel_of(p, r.chosen, label, routed_label) == travel::entries);
  CHECK(travel_of(p, r.chosen, tokens, label) == travel::entries);
  CHECK(travel_of(p, r.chosen, label, tokens) == travel::rows);
  CHECK(travel_of(q, many.chosen, tokens, label) == travel::rows);  // half of its places
  CHECK(travel_of(p, r.units, tokens, routed_label) == travel::sampled);
  CHECK(travel_of(p, r.units, tokens, label) == travel::rows);
  CHECK(travel_of(p, r.units, label, routed_label) == travel::rows);
  CHECK(travel_of(whole_router, r.units, tokens, routed_label) == travel::rows);
  CHECK(travel_of(p, r.scores, tokens, routed_label) == travel::rows);  // all of them are read
  CHECK(travel_of(p, behind, tokens, routed_label) == travel::rows);
  CHECK(travel_of(p, before, tokens, routed_label) == travel::rows);
  CHECK(travel_of(p, between, tokens, routed_label) == travel::rows);
  CHECK(travel_of(p, other, tokens, routed_label) == travel::rows);  // no token follows it
  CHECK(move_of(p, r.units, tokens, routed_label).inner == 6);
  CHECK(move_of(p, before, tokens, routed_label).inner == 6);
  CHECK(move_of(p, r.units, tokens, routed_label).load.entries == 5);
  CHECK(move_of(r.problem(roots), r.chosen, tokens, label).load.entries == 5);
}

}  // namespace
