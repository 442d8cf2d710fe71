// SPDX-License-Identifier: MIT
// expect: kept gives two results: kept(selection).values and kept(selection).indices
// cause: The layer returns what `kept` gives, a pair of expressions, as if it were one result.
// cure: Return a tuple of its parts.
#include <fmoe/compile.hpp>
#include <fmoe/evaluate.hpp>

using namespace fmoe;

int main() {
  compile(
      [](const auto& x) {
        const auto best = kept(top_k(x, 2));
        return std::tuple(best.values, best.indices);
      },
      4);
#ifdef FMOE_MISUSE
  compile([](const auto& x) { return kept(top_k(x, 2)); }, 4);
#endif
}
