// SPDX-License-Identifier: MIT
#include <fmoe/planner/fuse.hpp>

#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;
using G = blueprint&;

// Returns the fused program that `build` makes of x[8, 5].
template <class Build>
lines fused(Build build) {
  blueprint g;
  const ir::node_id y = build(g, g.tensor({8, 5}));
  planner::program p = make_program(g, y, machine_options());
  fuse(p);
  return describe(p);
}

TEST_CASE("bias and activation follow the product", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) {
          return g.relu(g.add(g.linear(x, 5, 4), g.parameter({4})));
        }) == lines{"gemm ti,io->to | + | relu"});
  CHECK(fused([](G g, ir::node_id x) { return g.relu(g.relu(x)); }) ==
        lines{"pointwise tb->tb | relu | relu"});
  CHECK(fused([](G g, ir::node_id x) {
          return g.relu(g.einsum("ti,ti->t", {x, g.tensor({8, 5})}));
        }) == lines{"batched ti,ti->t | relu"});
  CHECK(fused([](G g, ir::node_id) {
          return g.relu(g.einsum("tpi->ti", {g.tensor({8, 2, 5})}));
        }) == lines{"reduce tpi->ti | relu"});
  CHECK(fused([](G g, ir::node_id x) { return g.multiply(g.relu(x), x); }) ==
        lines{"pointwise tb->tb | relu | *"});
}

TEST_CASE("a product with two appended ones takes two slices of its weight as biases", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) {
          return g.linear(g.make(ir::append_node{g.make(ir::append_node{x})}), 7, 4);
        }) == lines{"once slice io->o", "once slice io->o", "gemm ti,io->to | + | +"});
}

TEST_CASE("a Hadamard product joins the later product, but a gather first", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) {
          return g.multiply(g.linear(x, 5, 4), g.linear(x, 5, 4));
        }) == lines{"gemm ti,io->to", "gemm ti,io->to | *"});
  const auto mxd = [](G g, ir::node_id x, bool gather_left) {
    const ir::node_id a = g.einsum("tn,no->to",
                                   {g.top_k(g.tensor({8, 50}), 3), g.parameter({50, 4})}),
                      z = g.linear(x, 5, 4);
    return g.add(gather_left ? g.multiply(a, z) : g.multiply(z, a), g.parameter({4}));
  };
  CHECK(fused([&](G g, ir::node_id x) { return mxd(g, x, true); }) ==
        lines{"top_k tb->tb", "gemm ti,io->to", "gather tn,no->to | * | +"});
  CHECK(fused([&](G g, ir::node_id x) { return mxd(g, x, false); }) ==
        lines{"top_k tb->tb", "gemm ti,io->to", "gather tn,no->to | * | +"});
}

TEST_CASE("a sum of two products goes on where the first ends", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) { return g.add(g.linear(x, 5, 4), g.linear(x, 5, 4)); }) ==
        lines{"gemm ti,io->to", "gemm ti,io->to +="});
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id y = g.relu(g.linear(x, 5, 4)), z = g.add(y, g.linear(x, 5, 4));
          return g.relu(g.add(z, g.parameter({4})));
        }) == lines{"gemm ti,io->to | relu", "gemm ti,io->to += | + | relu"});
  // three sums in a row
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id two = g.add(g.linear(x, 5, 4), g.linear(x, 5, 4));
          return g.add(two, g.linear(x, 5, 4));
        }) == lines{"gemm ti,io->to", "gemm ti,io->to +=", "gemm ti,io->to +="});
  // no sum goes on from an input, which would be overwritten, nor from a value that is read again
  CHECK(fused([](G g, ir::node_id x) { return g.add(x, g.linear(x, 5, 5)); }) ==
        lines{"gemm ti,io->to | +"});
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id y = g.relu(g.linear(x, 5, 5));
          return g.add(y, g.linear(y, 5, 5));
        }) == lines{"gemm ti,io->to | relu", "gemm ti,io->to | +"});
  // no sum goes on from the result of a pass
  CHECK(fused([](G g, ir::node_id x) {
          return g.add(g.relu(g.linear(x, 5, 4)), g.relu(g.linear(x, 5, 4)));
        }) == lines{"gemm ti,io->to | relu", "gemm ti,io->to | relu | +"});
}

TEST_CASE("a value with two readers is not fused away", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id y = g.linear(x, 5, 4);
          return g.multiply(y, y);
        }) == lines{"gemm ti,io->to", "pointwise tb->tb | *"});
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id y = g.linear(x, 5, 4);
          return g.multiply(g.relu(y), y);
        }) == lines{"gemm ti,io->to", "pointwise to->to | relu | *"});
  CHECK(fused([](G g, ir::node_id x) {
          const ir::node_id y = g.linear(x, 5, 5), z = g.relu(y);
          return g.add(z, g.linear(y, 5, 5));
        }) == lines{"gemm ti,io->to", "pointwise to->to | relu", "gemm ti,io->to +="});
}

TEST_CASE("nothing follows softmax, top_k, expand or concat", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) { return g.relu(g.softmax(x)); }).size() == 2);
  CHECK(fused([](G g, ir::node_id x) { return g.relu(g.concat({x, x}, 1)); }).size() == 2);
  CHECK(fused([](G g, ir::node_id x) { return g.relu(g.top_k(x, 2)); }).size() == 3);
}

TEST_CASE("constants are fused among themselves, not into tokens", "[fuse]") {
  CHECK(fused([](G g, ir::node_id x) {
          return g.add(x, g.relu(g.map(pointwise::negate, 0, g.parameter({5}))));
        }) == lines{"once pointwise a->a | negate | relu", "pointwise tb->tb | +"});
  CHECK(fused([](G g, ir::node_id x) {
          return g.multiply(g.linear(x, 5, 4), g.einsum("ab->b", {g.parameter({3, 4})}));
        }) == lines{"once reduce ab->b", "gemm ti,io->to | *"});
}

TEST_CASE("a smaller operand is the pass, never the base", "[fuse]") {
  CHECK(fused([](G g, ir::node_id) {
          const ir::node_id wide = g.tensor({8, 3, 4}), row = g.linear(g.tensor({8, 6}), 6, 4);
          return g.einsum("tab,tb->tab", {wide, row});
        }) == lines{"gemm ti,io->to", "pointwise tab->tab | *"});
  // An extent of one that makes it as large does not change this.
  CHECK(fused([](G g, ir::node_id) {
          const ir::node_id wide = g.tensor({8, 1, 4}), row = g.linear(g.tensor({8, 6}), 6, 4);
          return g.einsum("tab,tb->tab", {wide, row});
        }) == lines{"gemm ti,io->to", "pointwise tab->tab | *"});
  CHECK(fused([](G g, ir::node_id) {
          return g.add(g.parameter({3, 4}),
                       g.einsum("ti,iab->tab", {g.tensor({8, 6}), g.parameter({6, 3, 4})}));
        }) == lines{"gemm ti,iab->tab | +"});
}

}  // namespace
