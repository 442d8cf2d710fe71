// SPDX-License-Identifier: MIT
// expect: released: a weight has a fmoe::released_name, which tells the labels of its axes, too: docs/adding_a_layer.md shows some
// cause: The layer's function `released` visits a parameter with a text alone, which does not tell the axes.
// cure: Pass a `released_name` with the labels of the file's axes.
#include <fmoe/io/safetensors.hpp>

using namespace fmoe;

struct named {
  parameter<float, 2> weight;  // i o
  static void released(auto& layer, auto&& visit) {
    visit(released_name{"weight", presence::required, "io"}, layer.weight);
  }
};

struct linear {
  parameter<float, 2> weight;  // i o
  static void released(auto& layer, auto&& visit) { visit("weight", layer.weight); }
};

int main() {
  save(named(), "linear.safetensors");
#ifdef FMOE_MISUSE
  save(linear(), "linear.safetensors");
#endif
}
