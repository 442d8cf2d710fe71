// SPDX-License-Identifier: MIT
// expect: steered: the layer has expert(n), which takes x or is a matrix [i, o], or there is an expert_output(layer, x, n)
// cause: The layer of your own does not say what one expert adds to the output.
// cure: Give it a function `expert(n)`, as the page about adding a layer does.
#include <fmoe/edit.hpp>

using namespace fmoe;

struct rows_of_a_table {
  parameter<float, 2> gate = tensor<float, 2>({8, 5}), table = tensor<float, 2>({5, 3});

  auto coefficients(const operand_of<2> auto& x) const { return einsum<"ti,in->tn">(x, gate); }
  auto mixed(const operand_of<2> auto&, const operand_of<2> auto& a) const {
    return einsum<"tn,no->to">(a, table);
  }
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
};

int main() {
  const rows_of_a_table layer;
  ablated(layer, {3});
#ifdef FMOE_MISUSE
  steered(layer, 3, 1);
#endif
}
