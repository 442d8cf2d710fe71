// SPDX-License-Identifier: MIT
#include <fmoe/plan/stream.hpp>
#include <fmoe/planner/fuse.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using G = blueprint&;

// Returns the loops of the program that `build` makes of x[96, 64], for a tile of 96: "n 5000 by
// 768: top_k" is a loop that ends with top_k; and the values that exist in chunks.
template <class Build>
lines streamed(Build build, planner::plan_options options = machine_options(), extent tile = 96) {
  blueprint g;
  const ir::node_id y = build(g, g.tensor({96, 64}));
  planner::program p = make_program(g, y, options);
  fuse(p);
  cpu::gather_loops(p, options);
  const auto all = describe(p);
  const planner::program_index index(p);
  lines r;
  for (const plan::stream_loop& l : cpu::streams(p, options, tile)) {
    std::string s = l.label + (' ' + std::to_string(l.length)) + " by " + std::to_string(l.chunk);
    for (const extent o : l.operations) s += "; " + all[o];
    for (const planner::value_id v : l.values)
      CHECK(std::ranges::count(l.operations, index.producer(v).value()) == 1);
    r.push_back(std::move(s));
  }
  return r;
}

ir::node_id two_layers(G g, ir::node_id x, extent hidden) {
  return g.linear(g.relu(g.linear(x, 64, hidden)), hidden, 32);
}

TEST_CASE("a wide value between two products is streamed", "[stream]") {
  CHECK(streamed([](G g, ir::node_id x) { return two_layers(g, x, 3072); }) ==
        lines{"o 3072 by 768; gemm ti,io->to | relu; gemm ti,io->to"});
}

TEST_CASE("a value that fits stays whole", "[stream]") {
  const extent fits = (extent{320} << 10) / 96 / 4;  // elements a token
  CHECK(streamed([&](G g, ir::node_id x) { return two_layers(g, x, fits); }).empty());
  CHECK(streamed([&](G g, ir::node_id x) { return two_layers(g, x, fits + 1); }).size() == 1);
  CHECK(streamed([&](G g, ir::node_id x) { return two_layers(g, x, fits + 1); }, machine_options(),
                 48)
            .empty());
  CHECK(streamed([](G g, ir::node_id x) { return two_layers(g, x, 100); }, tiny_options(), 24)
            .size() == 1);
}

TEST_CASE(
    "chunks are whole panels and whole blocks of the sum, of even length, at most the width asked "
    "for",
    "[stream]") {
  const auto chunk = [](extent hidden, planner::plan_options o) {
    const auto r = streamed([&](G g, ir::node_id x) { return two_layers(g, x, hidden); }, o);
    REQUIRE(r.size() == 1);
    const auto by = r[0].find(" by ") + 4;
    return extent{std::stoul(r[0].substr(by))};
  };
  CHECK(chunk(21490, machine_options()) == 768);
  CHECK(chunk(1000, machine_options()) == 512);  // two of 500, rounded up to blocks of the sum
  CHECK(chunk(1600, machine_options()) == 768);
  CHECK(chunk(100, tiny_options()) == 64);
  CHECK(chunk(129, tiny_options()) == 64);  // three of 43, rounded up
  auto wide = tiny_options();
  wide.kernels.panel = 16;
  CHECK(chunk(129, wide) == 48);
  wide.shape.chunk = 1;
  CHECK(chunk(129, wide) == 16);
}

TEST_CASE("several columns a unit are counted", "[stream]") {
  // h is [2000, 3] for each token: 32 units make whole panels of 32, 256 stay below 768 elements.
  const auto r = streamed([](G g, ir::node_id x) {
    const ir::node_id h = g.einsum("ti,iab->tab", {x, g.parameter({64, 2000, 3})});
    return g.einsum("tab,abo->to", {h, g.parameter({2000, 3, 8})});
  });
  CHECK(r == lines{"a 2000 by 256; gemm ti,iab->tab; gemm tab,abo->to"});
}

TEST_CASE("top-k runs along with its scores", "[stream]") {
  CHECK(streamed([](G g, ir::node_id x) {
          return g.einsum("tn,no->to",
                          {g.top_k(g.relu(g.linear(x, 64, 5000)), 8), g.parameter({5000, 32})});
        }) == lines{"o 5000 by 736; gemm ti,io->to | relu; top_k to->to"});
  // there is no loop if a token has several rows
  CHECK(streamed([](G g, ir::node_id x) {
          return g.top_k(g.einsum("ti,ipn->tpn", {x, g.parameter({64, 4, 5000})}), 8);
        }).empty());
}

TEST_CASE("every single-use producer that carries the label joins", "[stream]") {
  const auto r = streamed([](G g, ir::node_id x) {
    const ir::node_id z =
        g.multiply(g.map(pointwise::silu, 0, g.linear(x, 64, 3000)), g.linear(x, 64, 3000));
    return g.linear(z, 3000, 32);
  });
  REQUIRE(r.size() == 1);
  CHECK(std::ranges::count(r[0], ';') == 3);
}

TEST_CASE(
    "values that a reader needs whole, or two parts of one sum, results, softmax and concat stay "
    "whole",
    "[stream]") {
  CHECK(streamed([](G g, ir::node_id x) {
          const ir::node_id h = g.linear(x, 64, 5000);
          return g.add(g.linear(h, 5000, 32), g.linear(h, 5000, 32));
        }).empty());
  CHECK(streamed([](G g, ir::node_id x) {
          const ir::node_id h = g.linear(x, 64, 5000);
          return g.add(g.linear(h, 5000, 32), g.linear(g.softmax(h), 5000, 32));
        }).empty());
  CHECK(streamed([](G g, ir::node_id x) { return g.linear(x, 64, 5000); }).empty());
  CHECK(streamed([](G g, ir::node_id x) {
          return g.linear(g.softmax(g.linear(x, 64, 5000)), 5000, 32);
        }).empty());
  CHECK(streamed([](G g, ir::node_id x) {
          const ir::node_id h = g.linear(x, 64, 5000);
          return g.linear(g.concat({h, x}, 1), 5064, 32);
        }).empty());
}

TEST_CASE("a reader that sums along another axis first keeps it whole", "[stream]") {
  CHECK(streamed([](G g, ir::node_id x) {
          const ir::node_id h = g.einsum("ti,iab->tab", {x, g.parameter({64, 40, 200})});
          return g.einsum("tab,bo->tao", {h, g.parameter({200, 8})});
        }).empty());
}

TEST_CASE("batched products make chunks of their first axis, and sum chunks of another's",
          "[stream]") {
  constexpr extent p = 6, halves = 512, m = 12;
  const auto mixed = [](G g, ir::node_id x, const char* subscripts) {
    const ir::node_id u = g.relu(g.einsum("ti,iam->tam", {x, g.parameter({64, halves, m})}));
    const ir::node_id y =
        g.einsum(subscripts, {u, g.tensor({96, p, halves}), g.tensor({96, p, halves})});
    return g.einsum("tbm,bmo->to", {y, g.parameter({halves, m, 32})});
  };
  CHECK(streamed([&](G g, ir::node_id x) { return mixed(g, x, "tam,tpa,tpb->tbm"); }) ==
        lines{"a 512 by 64; gemm ti,iam->tam | relu; batched tpa,tam->tpm",
              "b 512 by 64; batched tpb,tpm->tbm; gemm tbm,bmo->to"});
  CHECK(streamed([&](G g, ir::node_id x) { return mixed(g, x, "tam,tpa,tpb->tbm"); },
                 machine_options(), 1)
            .empty());
  // the outermost loop of a sum, which the left operand names, sets its chunks
  const auto units = [](G g, ir::node_id x) {
    return g.einsum("ti,iam->tam", {x, g.parameter({64, halves, m})});
  };
  CHECK(streamed([&](G g, ir::node_id x) {
          return g.einsum("tma,tam->t", {g.tensor({96, m, halves}), units(g, x)});
        }) == lines{"a 512 by 64; gemm ti,iam->tam; batched tam,tma->t"});
  CHECK(streamed([&](G g, ir::node_id x) {
          return g.einsum("tam,tma->t", {units(g, x), g.tensor({96, m, halves})});
        }).empty());
}

// Hidden units of one gate each, straight and crossed with the next ones.
ir::node_id crossed(G g, ir::node_id x, extent n) {
  constexpr extent halves = 512, m = 12;
  std::vector<ir::node_id> gates, units, parts;
  for (extent i = 0; i < n; ++i) gates.push_back(g.softmax(g.linear(x, 64, halves)));
  for (extent i = 0; i < n; ++i)
    units.push_back(g.einsum("ti,iam->tam", {x, g.parameter({64, halves, m})}));
  for (extent i = 0; i < n; ++i) {
    const extent next = (i + 1) % n;
    const ir::node_id flow =
        g.einsum("tam,ta,amo->to", {units[i], gates[i], g.parameter({halves, m, 32})});
    const ir::node_id other = g.einsum("tam,ta->tm", {units[next], gates[next]});
    parts.push_back(g.add(flow, g.einsum("tm,mo->to", {other, g.parameter({m, 32})})));
  }
  return g.concat(std::move(parts), 1);
}

TEST_CASE("several readers take a chunk each, or make one of another value", "[stream]") {
  const auto r = streamed([](G g, ir::node_id x) { return crossed(g, x, 2); });
  REQUIRE(r.size() == 2);
  for (const std::string& loop : r) {
    INFO(loop);
    CHECK(std::ranges::count(loop, ';') == 4);
    CHECK(loop.starts_with("a 512 by 64; gemm ti,iam->tam; "));
    for (const char* reader : {"batched ta,tam->tam", "gemm tam,amo->to", "batched ta,tam->tm"})
      CHECK(loop.find(reader) != std::string::npos);
  }
}

TEST_CASE("what reads a loop's results moves behind it, and nothing else changes its order",
          "[stream]") {
  blueprint g;
  const ir::node_id y = crossed(g, g.tensor({96, 64}), 2);
  planner::program p = make_program(g, y, machine_options());
  fuse(p);
  planner::program q = p;
  cpu::gather_loops(q, machine_options());
  REQUIRE(q.operations.size() == p.operations.size());
  const auto together = [](const planner::program& any) {  // operations in loops
    extent n = 0;
    for (const plan::stream_loop& l : cpu::streams(any, machine_options(), 96))
      n += l.operations.size();
    return n;
  };
  CHECK(together(p) < together(q));  // as they stood, some could not be
  list_by<planner::value_id, bool> made(q.values.size(), false);
  for (const planner::operation& o : q.operations) {
    for (const planner::value_id v : q.values.ids())
      if (q.reads(o, v) > 0 && !q[v].leaf) CHECK(made[v]);
    made[o.out.value] = true;
  }
  CHECK(std::ranges::all_of(
      p.operations, [&](const planner::operation& o) -> bool { return made[o.out.value]; }));
  // Of four loops, what one of them moves is found where it then stands.
  blueprint h;
  planner::program four = make_program(h, crossed(h, h.tensor({96, 64}), 4), machine_options());
  fuse(four);
  cpu::gather_loops(four, machine_options());
  CHECK(together(four) == 2 * together(q));
  auto small = machine_options();
  small.shape.streamed = extent{1} << 30;
  planner::program whole = p;
  cpu::gather_loops(whole, small);
  CHECK(describe(whole) == describe(p));
}

TEST_CASE("two loops follow each other: no operation is in both", "[stream]") {
  const auto r =
      streamed([](G g, ir::node_id) { return mxd_graph(g, 96, 768, 3072, 21490, 768, 32); });
  CHECK(r == lines{"n 21490 by 768; gemm ti,in->tn | + | relu; top_k tn->tn",
                   "h 3072 by 768; gemm ti,ih->th | + | gelu; gemm th,ho->to"});
  const auto chain = streamed([](G g, ir::node_id x) {
    return g.linear(g.relu(g.linear(g.relu(g.linear(x, 64, 4000)), 4000, 4000)), 4000, 32);
  });
  CHECK(chain == lines{"o 4000 by 768; gemm ti,io->to | relu; gemm ti,io->to | relu"});
}

}  // namespace
