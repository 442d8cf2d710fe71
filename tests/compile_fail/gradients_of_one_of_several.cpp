// SPDX-License-Identifier: MIT
// expect: compile_gradients: the slope returns a gradient for each result of the layer
// cause: The slope of a loss of several results is a tuple of as many.
// cure: Return zeros for a result that the loss does not read, `0.0 * a`.
#include <fmoe/gradients.hpp>

using namespace fmoe;

// A layer that shows its scores.
struct open_layer {
  parameter<float, 2> weight = parameter<float, 2>({8, 8});

  auto operator()(const operand_of<2> auto& x) const {
    const auto scores = einsum<"ti,io->to">(x, weight);
    return std::tuple(relu(scores), scores);
  }
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"weight", presence::required, "io"}, layer.weight);
  }
};

int main() {
  const open_layer layer;
#ifdef FMOE_MISUSE
  compile_gradients(layer, 4, [](const auto& y, const auto& t) { return std::get<0>(y) - t; });
#endif
}
