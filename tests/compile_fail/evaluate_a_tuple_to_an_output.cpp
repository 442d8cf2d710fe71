// SPDX-License-Identifier: MIT
// expect: evaluate takes a tensor or an expression; for a layer write evaluate(layer(x))
// cause: evaluate writes one expression to an output, and the first argument is a tuple of them.
// cure: Take the results: `const auto [a, b] = evaluate(std::tuple(relu(x), gelu(x)))`.
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  const tensor<float, 2> x({4, 8});
  const auto [a, b] = evaluate(std::tuple(relu(x), gelu(x)));
  tensor<float, 2> y({4, 8});
#ifdef FMOE_MISUSE
  evaluate(std::tuple(relu(x), gelu(x)), y);
#endif
}
