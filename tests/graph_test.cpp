// SPDX-License-Identifier: MIT
#include <fmoe/expr/concat.hpp>
#include <fmoe/expr/einsum.hpp>
#include <fmoe/expr/rows.hpp>
#include <fmoe/ir/graph.hpp>
#include <fmoe/mxd.hpp>

#include "support/catch.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

ir::node_id tensor_leaf(ir::graph& g, std::vector<extent> shape, bool parameter = false) {
  const extent bytes = element_count(shape, sizeof(float));
  return g.leaf({std::make_shared<storage>(bytes), dtype::float32, std::move(shape), parameter});
}
ir::node_id argument_leaf(ir::graph& g, int index, std::vector<extent> shape) {
  return g.leaf({nullptr, dtype::float32, std::move(shape), false, index});
}

template <class F>
std::string text_of_error(F f) {
  try {
    f();
  } catch (const shape_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST_CASE("equal nodes are one node", "[graph]") {
  ir::graph g;
  const ir::node_id x = tensor_leaf(g, {4, 5}), w = tensor_leaf(g, {5, 6}, true);
  const ir::node_id y = g.einsum("ti,io->to", {x, w});
  CHECK(g.einsum("ti,io->to", {x, w}) == y);
  CHECK(g.einsum("ab,bc->ac", {x, w}) == y);
  CHECK(g.einsum("ab,bc->ca", {x, w}) != y);
  CHECK(g.map(pointwise::relu, 0, y) == g.map(pointwise::relu, 0, y));
  CHECK(g.map(pointwise::scale, 2, y) != g.map(pointwise::scale, 3, y));
  CHECK(g.select({selection_rule::kind::top_k, 2}, y) !=
        g.select({selection_rule::kind::top_k, 3}, y));
  CHECK(g.select({selection_rule::kind::top_k, 2}, y) ==
        g.select({selection_rule::kind::top_k, 2}, y));
  CHECK(g.concat({y, y}, 0) != g.concat({y, y}, 1));
  CHECK(g.concat({y, y}, 0) == g.concat({y, y}, 0));
  CHECK(g.size() == 11);
}

TEST_CASE("leaves are equal where they share storage, type, shape and role", "[graph]") {
  ir::graph g;
  const auto data = std::make_shared<storage>(64);
  const ir::node_id x = g.leaf({data, dtype::float32, {4, 4}});
  CHECK(g.leaf({data, dtype::float32, {4, 4}}) == x);
  CHECK(g.leaf({data, dtype::float32, {2, 8}}) != x);
  CHECK(g.leaf({data, dtype::float64, {4, 2}}) != x);
  CHECK(g.leaf({data, dtype::float32, {4, 4}, true}) != x);
  CHECK(g.leaf({std::make_shared<storage>(64), dtype::float32, {4, 4}}) != x);
  CHECK(argument_leaf(g, 0, {3}) == argument_leaf(g, 0, {3}));
  CHECK(argument_leaf(g, 0, {3}) != argument_leaf(g, 1, {3}));
}

mxd<> small_mxd() {
  mxd<> layer;
  layer.encoder = parameter<float, 2>({5, 7});
  layer.encoder_bias = parameter<float, 1>({7});
  layer.gate = parameter<float, 2>({5, 9});
  layer.gate_bias = parameter<float, 1>({9});
  layer.scales = parameter<float, 2>({9, 6});
  layer.decoder = parameter<float, 2>({7, 6});
  layer.bias = parameter<float, 1>({6});
  layer.active = 2;
  return layer;
}

TEST_CASE("MxD is 17 nodes: x stands once", "[graph]") {
  const auto layer = small_mxd();
  const tensor<float, 2> x({3, 5});
  ir::graph g;
  const ir::node_id y = layer(x).lower(g);
  CHECK(g.size() == 17);
  CHECK(g.shape(y) == std::vector<extent>{3, 6});
  CHECK(layer(x).lower(g) == y);
  CHECK(g.size() == 17);
}

TEST_CASE("errors name the operation, the label and both extents", "[graph]") {
  ir::graph g;
  const ir::node_id a = tensor_leaf(g, {4, 5}), b = tensor_leaf(g, {6, 7}),
                    c = tensor_leaf(g, {5, 5});
  CHECK(text_of_error([&] { g.einsum("ti,io->to", {a, b}); }) ==
        "[einsum] 'i' is 5 in operand 0 and 6 in operand 1 of \"ti,io->to\"");
  CHECK(text_of_error([&] { g.einsum("ii->i", {a}); }) ==
        "[einsum] 'i' is 4 in operand 0 and 5 in operand 0 of \"ii->i\"");
  CHECK(text_of_error([&] { g.add(a, b); }) ==
        "[add] axis 0 is 4 and 6: operands of 2 and 2 axes align at their last axes");
  const ir::node_id one = tensor_leaf(g, {1});
  CHECK(text_of_error([&] { g.add(a, one); }) ==
        "[add] axis 1 is 5 and 1: operands of 2 and 1 axes align at their last axes");
  CHECK(text_of_error([&] { g.multiply(a, b); }).starts_with("[multiply] axis 0 is 4 and 6"));
  CHECK(text_of_error([&] { g.join(detail::pass_kind::keep, one, a); }) ==
        "[where] the left operand has 1 axes and the right one has more, 2");
  CHECK(text_of_error([&] { g.concat({a, c}, 1); }) ==
        "[concat] axis 0 is 4 and 5: operands may differ along axis 1 only");
  CHECK(g.shape(g.concat({a, c}, 0)) == std::vector<extent>{9, 5});
}

TEST_CASE("the extents of arguments follow from the layer, wherever they are found", "[graph]") {
  ir::graph g;
  const ir::node_id x = argument_leaf(g, 0, {10, all});
  CHECK(g.extent_of(g[x].axes[1]) == all);
  CHECK(text_of_error([&] { g.shape(x); }) ==
        "[compile] nothing in the layer fixes the extent of axis 1 of argument 0: say it with "
        "fmoe::sized");

  const ir::node_id twice = g.map(pointwise::relu, 0, g.add(x, x));
  CHECK(g.extent_of(g[twice].axes[1]) == all);
  g.einsum("ti,io->to", {twice, tensor_leaf(g, {5, 6}, true)});
  CHECK(g.shape(x) == std::vector<extent>{10, 5});
  CHECK(g.shape(twice) == std::vector<extent>{10, 5});
  CHECK(text_of_error([&] { g.einsum("ti,io->to", {x, tensor_leaf(g, {4, 6}, true)}); }) ==
        "[einsum] 'i' is 5 in operand 0 and 4 in operand 1 of \"ti,io->to\"");
}

TEST_CASE("unknown extents that must be equal are joined before one is known", "[graph]") {
  ir::graph g;
  const ir::node_id x = argument_leaf(g, 0, {3, all}), y = argument_leaf(g, 1, {3, all}),
                    z = argument_leaf(g, 2, {3, all});
  g.multiply(x, y);
  g.add(z, y);
  CHECK(g.same(g[x].axes[1], g[z].axes[1]));
  CHECK(!g.same(g[x].axes[0], g[x].axes[1]));
  g.add(z, tensor_leaf(g, {8}, true));
  for (const ir::node_id id : {x, y, z}) CHECK(g.shape(id) == std::vector<extent>{3, 8});
  ir::graph h;
  const ir::node_id late = argument_leaf(h, 0, {3, all});
  const ir::node_id both = h.concat({late, late}, 1), more = h.make(ir::append_node{both});
  CHECK_THROWS_AS(h.shape(more), shape_error);
  h.add(late, tensor_leaf(h, {8}, true));
  CHECK(h.shape(more) == std::vector<extent>{3, 17});
  ir::graph k;
  const ir::node_id rest = argument_leaf(k, 0, {3, all}),
                    whole = k.concat({rest, tensor_leaf(k, {3, 4})}, 1);
  k.add(whole, tensor_leaf(k, {9}, true));
  CHECK(k.shape(rest) == std::vector<extent>{3, 5});
  CHECK(text_of_error([&] { k.add(k.make(ir::append_node{rest}), tensor_leaf(k, {7}, true)); }) ==
        "[add] axis 1 is 6 and 7: operands of 2 and 1 axes align at their last axes");
}

TEST_CASE("broadcasting aligns last axes, whichever operand is longer", "[graph]") {
  ir::graph g;
  const ir::node_id a = tensor_leaf(g, {2, 3, 4}), b = tensor_leaf(g, {4}),
                    c = tensor_leaf(g, {3, 4}), s = tensor_leaf(g, {});
  for (const ir::node_id right : {b, c, s, a}) {
    CHECK(g.shape(g.add(a, right)) == std::vector<extent>{2, 3, 4});
    CHECK(g.shape(g.add(right, a)) == std::vector<extent>{2, 3, 4});
    CHECK(g.shape(g.multiply(a, right)) == std::vector<extent>{2, 3, 4});
    CHECK(g.shape(g.multiply(right, a)) == std::vector<extent>{2, 3, 4});
  }
  CHECK_THROWS_AS(g.add(a, tensor_leaf(g, {2})), shape_error);
}

TEST_CASE("an empty tensor is refused when it is used", "[graph]") {
  const tensor<float, 2> x({3, 5});
  const parameter<float, 2> none;
  ir::graph g;
  CHECK_THROWS_AS((einsum<"ti,io->to">(x, none).lower(g)), value_error);
}

}  // namespace
