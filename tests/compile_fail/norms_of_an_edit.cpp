// SPDX-License-Identifier: MIT
// expect: contribution_norms: the layer has contribution_norms(x, a) beside mixed(x, a)
// cause: The layer below an edit does not tell what its experts add with other coefficients.
// cure: Give the layer of your own `contribution_norms(x, a)`.
#include <fmoe/edit.hpp>
#include <fmoe/mxd.hpp>

using namespace fmoe;

struct rows_of_a_table {
  parameter<float, 2> gate, table;

  auto coefficients(const operand_of<2> auto& x) const { return einsum<"ti,in->tn">(x, gate); }
  auto mixed(const operand_of<2> auto&, const operand_of<2> auto& a) const {
    return einsum<"tn,no->to">(a, table);
  }
  auto operator()(const operand_of<2> auto& x) const { return mixed(x, coefficients(x)); }
};

int main() {
  const rows_of_a_table layer{parameter<float, 2>({4, 6}), parameter<float, 2>({6, 3})};
  const tensor<float, 2> x({5, 4});
  const auto without = ablated(layer, {1});
  without(x);
#ifdef FMOE_MISUSE
  without.contribution_norms(x);
#endif
}
