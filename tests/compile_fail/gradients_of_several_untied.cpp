// SPDX-License-Identifier: MIT
// expect: gradients of a layer of several results take and write a tuple of arrays, one for each result
// cause: The layer returns a tuple, and so each result has an array, and a dy.
// cure: Write `step(x, std::tie(dy, da), std::tie(y, a), dx)`.
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
  tensor<float, 2> y({4, 8}), dx({4, 8});
  compile_gradients(layer, 4)(x, x, y, dx);
#endif
}
