// SPDX-License-Identifier: MIT
// expect: compile_gradients: a layer over ranks returns one result, and not a tuple
// cause: Gradients of a layer that is cut over ranks are those of its output.
// cure: Return the output alone.
#include <fmoe/distributed.hpp>

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
  run_on_threads(1, [&]([[maybe_unused]] communicator& ranks) {
#ifdef FMOE_MISUSE
    compile_gradients(shard(layer, ranks, 'o'), 4);
#endif
  });
}
