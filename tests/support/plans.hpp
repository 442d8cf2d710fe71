// SPDX-License-Identifier: MIT
// Graphs without data, and programs and plans as lines of text, for tests of the planner's passes.
#pragma once

#include <map>

#include <fmoe/backend/cpu/plan/planning.hpp>
#include <fmoe/planner/planner.hpp>
#include <fmoe/run/compile.hpp>

#include "catch.hpp"
#include "limits.hpp"

namespace fmoe::test {

using extents = std::vector<extent>;
using lines = std::vector<std::string>;

// A graph whose leaves have a shape but no elements, because the planner reads none.
struct blueprint : ir::graph {
  ir::node_id tensor(extents s) {
    return leaf({std::make_shared<storage>(extent{0}), dtype::float32, std::move(s)});
  }
  ir::node_id parameter(extents s) {
    return leaf({std::make_shared<storage>(extent{0}), dtype::float32, std::move(s), true});
  }
  ir::node_id argument(int index, extents s) {
    return leaf({nullptr, dtype::float32, std::move(s), false, index});
  }
  ir::node_id relu(ir::node_id x) { return map(pointwise::relu, 0, x); }
  ir::node_id top_k(ir::node_id x, extent k) { return select({selection_rule::kind::top_k, k}, x); }
  ir::node_id softmax(ir::node_id x) { return gate_of(gate::softmax, 0, x); }
  // x w; x may have more axes before the contracted one than the token's.
  ir::node_id linear(ir::node_id x, extent in, extent out) {
    return einsum("ti,io->to", {x, parameter({in, out})});
  }
};

// The program that is counted, and the CPU's plan of a graph.
inline planner::program make_program(const ir::graph& g, const ir::node_list& results,
                                     const planner::plan_options& how) {
  return planner::contractions(g, results, how);
}
inline cpu::plan make_plan(const ir::graph& g, const ir::node_list& results, extent tokens,
                           const planner::plan_options& how) {
  return cpu::make_plan(planner::lower(g, results, how), tokens, how);
}

// The plan of a layer, as compile makes it on this CPU.
template <class T, class Layer, extent... Ranks>
cpu::plan plan_of(const Layer& layer, arguments<Ranks...> ranks, extent tokens,
                  const planner::plan_options& how = {}) {
  const auto e =
      apply_to_arguments(layer, ranks, tokens, std::make_integer_sequence<int, sizeof...(Ranks)>{});
  ir::graph g;
  const ir::node_list roots = layer_results<std::remove_const_t<decltype(e)>>::lower(e, g);
  return make_plan(g, roots, tokens, on_this_cpu<T>(how));
}

inline planner::plan_options machine_options() {
  planner::plan_options o;
  o.on.panel = 32;
  o.on.selection_size = [](extent k) { return 4 * k + 256; };
  return o;
}

inline planner::plan_options tiny_options() {
  planner::plan_options o = machine_options();
  o.on.streamed = 1 << 10;
  o.on.chunk = 64;
  o.sum_block = 16;
  o.on.tile = 24;
  return o;
}

// The layer of mxd.hpp with GELU in its erf form and all biases.
inline ir::node_id mxd_graph(blueprint& g, extent tokens, extent i, extent h, extent n, extent o,
                             extent k) {
  const ir::node_id x = g.tensor({tokens, i});
  const ir::node_id a =
      g.top_k(g.relu(g.add(g.einsum("ti,in->tn", {x, g.parameter({i, n})}), g.parameter({n}))), k);
  const ir::node_id z = g.map(
      pointwise::gelu, 0, g.add(g.einsum("ti,ih->th", {x, g.parameter({i, h})}), g.parameter({h})));
  return g.add(g.einsum("tn,no,th,ho->to", {a, g.parameter({n, o}), z, g.parameter({h, o})}),
               g.parameter({o}));
}

// Returns lines such as "gemm ti,in->tn | + | relu". 't' comes before the labels of a value with
// one row for each token, and "once" before constants.
inline lines describe(const planner::program& p) {
  lines r;
  for (const planner::operation& o : p.operations) {
    const auto labels = [&](const planner::use& u) {
      return (p[u.value].per_token() ? "t" : "") + u.labels;
    };
    const char* what = o.what == planner::operation::kind::gate     ? fmoe::name_of(o.fn)
                       : o.what == planner::operation::kind::select ? fmoe::name_of(o.rule.what)
                                                                    : planner::name_of(o.what);
    std::string s = std::string(o.group >= 0                   ? "group "
                                : p[o.out.value].is_constant() ? "once "
                                                               : "") +
                    what + ' ';
    for (const planner::use& u : o.in) s += (&u == o.in.data() ? "" : ",") + labels(u);
    s += "->" + labels(o.out);
    if (o.start >= 0) s += " +=";
    for (const planner::pass& q : o.passes)
      s += q.what == planner::pass::kind::map   ? std::string(" | ") + fmoe::name_of(q.fn)
           : q.what == planner::pass::kind::add ? " | +"
                                                : " | *";
    r.push_back(std::move(s));
  }
  return r;
}

inline const char* kind_of(const cpu::step& s) {
  constexpr std::array kinds{"gemm",   "batched",   "reduce",        "gather", "rescale",
                             "sample", "pointwise", "gate",          "append", "select",
                             "screen", "token_sum", "expert_choice", "expand", "exclude",
                             "pick",   "put",       "loop",          "group"};
  static_assert(kinds.size() == std::variant_size_v<cpu::step>);
  return kinds[s.index()];
}

inline void describe(const std::vector<cpu::step>& steps, const std::string& lead, lines& r) {
  for (const cpu::step& s : steps) {
    std::string text = lead + kind_of(s);
    if (const auto* g = std::get_if<cpu::gate_step>(&s)) text = lead + fmoe::name_of(g->fn);
    if (const auto* k = std::get_if<cpu::select_step>(&s))
      text = lead + fmoe::name_of(k->rule.what);
    std::visit(
        [&](const auto& x) {
          if constexpr (std::is_same_v<decltype(x), const cpu::group_step&>) {
            r.push_back(text + ' ' + x.text + ' ' + std::to_string(x.keep) + " of " +
                        std::to_string(x.experts));
            describe(x.body, lead + "  ", r);
          } else if constexpr (requires { x.body; }) {
            r.push_back(text + ' ' + x.label + ' ' + std::to_string(x.length) + " by " +
                        std::to_string(x.chunk));
            describe(x.body, lead + "  ", r);
          } else {
            text += ' ' + x.text;
            if constexpr (requires { x.accumulate; })
              if (x.accumulate || x.k_step != 0) text += " +=";
            if constexpr (requires { x.epilogues; })
              for (const cpu::epilogue& e : x.epilogues)
                text += e.what == cpu::epilogue::kind::map
                            ? std::string(" | ") + fmoe::name_of(e.fn)
                        : e.what == cpu::epilogue::kind::add ? " | +"
                                                             : " | *";
            r.push_back(std::move(text));
          }
        },
        s);
  }
}

inline lines describe(const cpu::plan& p) {
  lines r;
  describe(p.prologue, "once ", r);
  describe(p.steps, "", r);
  return r;
}

// Lists the values that a step reads and writes; a loop counts as a whole.
inline void accesses(const cpu::step& s, std::vector<int>& reads, std::vector<int>& writes,
                     std::vector<int>& continued) {
  std::visit(
      [&](const auto& x) {
        if constexpr (requires { x.body; }) {
          for (const cpu::step& inner : x.body) accesses(inner, reads, writes, continued);
          if constexpr (requires { x.epilogues; })
            for (const cpu::epilogue& e : x.epilogues)
              if (e.other.storage >= 0) reads.push_back(e.other.storage);
        } else {
          if constexpr (requires { x.a; }) reads.push_back(x.a.storage);
          if constexpr (requires { x.b; })
            if (x.b.storage >= 0) reads.push_back(x.b.storage);
          if constexpr (requires { x.operands; }) {
            for (const cpu::view& v : x.operands) reads.push_back(v.storage);
            continued.push_back(x.c.storage);
          }
          if constexpr (requires { x.bound; })
            if (x.bound.storage >= 0) reads.push_back(x.bound.storage);
          if constexpr (requires { x.x; }) reads.push_back(x.x.storage);
          if constexpr (requires { x.table; }) reads.push_back(x.table.storage);
          if constexpr (requires { x.c; }) writes.push_back(x.c.storage);
          if constexpr (requires { x.selection; }) {
            if constexpr (requires { x.rule; }) writes.push_back(x.selection.storage);
            else reads.push_back(x.selection.storage);
          }
          if constexpr (requires { x.epilogues; })
            for (const cpu::epilogue& e : x.epilogues)
              if (e.other.storage >= 0) reads.push_back(e.other.storage);
          if constexpr (requires { x.accumulate; })
            if (x.accumulate) continued.push_back(x.c.storage);
        }
      },
      s);
}

// Checks temporaries by their uses in the steps: nothing is read before it is written, and two that
// are alive at the same step do not share memory; a loop is one step.
inline bool placement_is_sound(const cpu::plan& p) {
  struct life {
    int from = -1, to = -1;
  };
  std::map<int, life> lives;
  const auto in_arena = [&](int s) {
    return p.storages[static_cast<extent>(s)].where == cpu::storage_row::kind::arena;
  };
  const auto row = [&](int s) -> const cpu::storage_row& {
    return p.storages[static_cast<extent>(s)];
  };
  std::map<int, int> continues;  // a sum -> what it goes on from, in the same place
  for (int at = 0; at < static_cast<int>(p.steps.size()); ++at) {
    std::vector<int> reads, writes, continued;
    accesses(p.steps[static_cast<extent>(at)], reads, writes, continued);
    for (const int s : continued) {
      int last = -1;
      for (const auto& [other, l] : lives)
        if (other != s && row(other).where == row(s).where &&
            (!in_arena(s) || row(other).offset == row(s).offset) &&
            (last < 0 || l.from > lives[last].from))
          last = other;
      if (last < 0 || row(last).stride != row(s).stride) return false;
      continues[s] = last;
      lives[last].to = at;
    }
    for (const int s : writes) {
      life& l = lives[s];
      if (l.from < 0) l.from = at;
      l.to = at;
    }
    for (const int s : reads) {
      const auto kind = row(s).where;
      if (kind != cpu::storage_row::kind::arena && kind != cpu::storage_row::kind::call &&
          kind != cpu::storage_row::kind::output)
        continue;
      if (!lives.contains(s)) return false;
      lives[s].to = at;
    }
  }
  for (const auto& [s, l] : lives) {
    if (!in_arena(s)) continue;
    if (row(s).offset + row(s).stride * p.tile > p.arena) return false;
    for (const auto& [other, k] : lives) {
      if (other <= s || !in_arena(other) || k.to < l.from || l.to < k.from) continue;
      const bool handed_on =
          (continues.contains(other) && continues[other] == s && l.to == k.from) ||
          (continues.contains(s) && continues[s] == other && k.to == l.from);
      const bool apart = row(s).offset + row(s).stride * p.tile <= row(other).offset ||
                         row(other).offset + row(other).stride * p.tile <= row(s).offset;
      if (!apart && !handed_on) return false;
    }
  }
  return true;
}

}  // namespace fmoe::test
