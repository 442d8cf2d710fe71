// SPDX-License-Identifier: MIT
// The gradients of random expressions against central differences; each has the same bits in plans
// of other shapes.
#include <fmoe/evaluate.hpp>

#include "../support/census.hpp"
#include "../support/limits.hpp"
#include "../support/random_expression.hpp"
#include "../support/same_bits.hpp"
#include "../support/seeds.hpp"
#include "../support/slopes.hpp"

namespace {

using namespace fmoe;
using namespace fmoe::test;

// The graph with its leaves in double.
ir::graph in_double(const ir::graph& from) {
  ir::graph g = from.without_nodes();
  for (const ir::node_id id : from.ids()) {
    ir::node n = from[id];
    if (auto* l = get_if<ir::leaf_node>(&n.op)) {
      auto data = std::make_shared<storage>(element_count(l->shape) * sizeof(double));
      copy_numbers(l->numbers(), static_cast<double*>(data->data()));
      l->data = std::move(data);
      l->type = dtype::float64;
    }
    g.append(std::move(n));
  }
  return g;
}

std::vector<double> by_cpu(const ir::graph& g, ir::node_id id) {
  const auto y = computed<double>(g, id, limited<double>(usual_limits()));
  CHECK(same_bits(computed<double>(g, id, limited<double>(tiny_limits())), y));
  return y;
}

TEST_CASE("the gradients of random expressions are those of differences", "[gradients]") {
  extent expressions = 0, compared = 0, corners = 0;
  const bool is_whole = for_each_seed(1100, [&](unsigned seed) {
    const random_expression e(seed);
    if (e.exact()) return;  // small integers, which lie at corners
    const ir::graph g = in_double(e.g);
    INFO("FMOE_SEED=" << seed << "  " << e.text() << "  result " << static_cast<int>(e.root()));
    const slope_error error = error_of_slopes(g, e.root(), seed, 4, by_cpu);
    CAPTURE(error.compared, error.corners);
    CHECK(error.worst <= 1e-7);
    ++expressions;
    compared += error.compared;
    corners += error.corners;
  });
  CHECK((!is_whole || (expressions >= 500 && corners * 20 < compared)));
}

}  // namespace
