// SPDX-License-Identifier: MIT
// Planning has bounds: what the planner allocates grows as the number of operations, and the steps
// of the order search are limited for any number of operands.
#include "../support/allocations.hpp"
#include "../support/plans.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// A family of graphs: builds the one with `size` parts on tokens of 8 numbers.
struct family {
  const char* name;
  ir::node_id (*build)(blueprint& g, extent size);
};

const family families[] = {
    {"a chain of functions",
     [](blueprint& g, extent size) {
       ir::node_id x = g.tensor({32, 8});
       for (extent i = 0; i < size; ++i) x = g.map(pointwise::scale, 1 + double(i), x);
       return x;
     }},
    {"a chain of layers",
     [](blueprint& g, extent size) {
       ir::node_id x = g.tensor({32, 8});
       for (extent i = 0; i < size / 3; ++i) x = g.relu(g.add(g.linear(x, 8, 8), g.parameter({8})));
       return x;
     }},
    {"residual blocks",
     [](blueprint& g, extent size) {
       ir::node_id x = g.tensor({32, 8});
       for (extent i = 0; i < size / 4; ++i)
         x = g.add(x, g.linear(g.softmax(g.linear(x, 8, 8)), 8, 8));
       return x;
     }},
    {"a sum of products",
     [](blueprint& g, extent size) {
       const ir::node_id x = g.tensor({32, 8});
       ir::node_id sum = g.linear(x, 8, 8);
       for (extent i = 0; i < size / 2; ++i) sum = g.add(sum, g.linear(x, 8, 8));
       return sum;
     }},
    {"a balanced sum",
     [](blueprint& g, extent size) {
       const ir::node_id x = g.tensor({32, 8});
       std::vector<ir::node_id> parts;
       for (extent i = 0; i < size / 2; ++i) parts.push_back(g.linear(x, 8, 8));
       while (parts.size() > 1) {
         std::vector<ir::node_id> next;
         for (extent i = 0; i + 1 < parts.size(); i += 2)
           next.push_back(g.add(parts[i], parts[i + 1]));
         if (parts.size() % 2 != 0) next.push_back(parts.back());
         parts = std::move(next);
       }
       return parts[0];
     }},
    {"mixtures, each on what the last one made",
     [](blueprint& g, extent size) {
       ir::node_id x = g.tensor({32, 8});
       for (extent i = 0; i < size / 5; ++i) {
         const ir::node_id a = g.top_k(g.linear(x, 8, 16), 2);
         x = g.einsum("tn,no,th,ho->to",
                      {a, g.parameter({16, 8}), g.relu(g.linear(x, 8, 12)), g.parameter({12, 8})});
       }
       return x;
     }},
    {"concatenated layers",
     [](blueprint& g, extent size) {
       const ir::node_id x = g.tensor({32, 8});
       std::vector<ir::node_id> parts;
       for (extent i = 0; i < size / 2; ++i) parts.push_back(g.relu(g.linear(x, 8, 8)));
       return g.concat(std::move(parts), 1);
     }},
};

// Returns the bytes that planning allocates.
extent planning(const family& f, extent size) {
  blueprint g;
  const ir::node_id root = f.build(g, size);
  const auto how = tiny_options();
  return bytes_of_call([&] { make_plan(g, root, 32, how); });
}

TEST_CASE("planning allocates in proportion to the operations", "[bounds]") {
  for (const family& f : families) {
    INFO(f.name);
    const extent few = planning(f, 100), many = planning(f, 200);
    CHECK(few > 1000);
    CHECK(2 * many < 5 * few);  // the text of a concat names all operands for each of them
  }
}

TEST_CASE("a thousand operations are planned", "[bounds]") {
  for (const family& f : families) {
    INFO(f.name);
    CHECK(planning(f, 1000) < extent{1} << 30);
  }
}

// x A, A A', ... as one einsum of `operands` operands: a chain of matrices.
ir::node_id chain(blueprint& g, extent operands) {
  // 51 letters name axes, so a chain is closed into several sums where it is longer.
  std::string subscripts = "ta", result = "ta";
  std::vector<ir::node_id> in{g.tensor({32, 8})};
  char last = 'a';
  for (extent i = 1; i < operands; ++i) {
    char next = last == 'z' ? 'A' : static_cast<char>(last + 1);
    if (next == 't') ++next;
    if (next == 'Z' + 1) next = 'a';
    subscripts += std::string(",") + last + next;
    in.push_back(g.parameter({8, 8}));
    last = next;
  }
  return g.einsum(subscripts + "->t" + last, std::move(in));
}

TEST_CASE("an einsum of up to 64 operands is planned", "[bounds]") {
  for (const extent operands : {extent{8}, extent{12}, extent{24}, extent{48}, extent{64}}) {
    INFO(operands);
    blueprint g;
    const ir::node_id root = chain(g, operands);
    const auto how = tiny_options();
    CHECK(bytes_of_call([&] { make_plan(g, root, 32, how); }) < extent{64} << 20);
  }
  blueprint g;
  CHECK_THROWS_AS(chain(g, 65), value_error);
}

TEST_CASE("a part that several expressions share is planned once", "[bounds]") {
  expr<float, 2> x = expr(tensor<float, 2>({2, 3}));
  for (int i = 0; i < 60; ++i) x = x + relu(x);  // 2^60 times if it were lowered anew
  ir::graph g;
  x.lower(g);
  CHECK(g.size() == 1 + 2 * 60);
}

}  // namespace
