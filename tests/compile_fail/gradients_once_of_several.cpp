// SPDX-License-Identifier: MIT
// expect: gradients: the layer returns several results: write compile_gradients, whose step takes a tuple of arrays
// cause: `gradients` returns the output of a layer, and this one has several.
// cure: Compile the layer, and call the step.
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
  const tensor<float, 2> x({4, 8});
#ifdef FMOE_MISUSE
  gradients(layer, x, x);
#endif
}
