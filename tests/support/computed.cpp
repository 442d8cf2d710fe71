// SPDX-License-Identifier: MIT
#include <limits>

#include <fmoe/compile.hpp>
#include <fmoe/reference.hpp>

#include "run.hpp"

namespace fmoe::test {

template <class T>
std::vector<T> computed(const ir::graph& g, ir::node_id root, const compile_options& options) {
  const auto compiled = detail::compile_graph<T, cpu::native>(g, root, all, options);
  const auto shape = g.shape(root);
  std::vector<T> result(element_count(shape), std::numeric_limits<T>::quiet_NaN());
  const array_view y = view_at<all>(result.data(), shape);
  const bound_array bound{y, compiled.results[0].shape.size()};
  compiled.program->run({{}, {&bound, 1}, compiled.tokens});
  return result;
}

std::vector<double> by_reference(const ir::graph& g, ir::node_id root) {
  return computed<double>(g, root, {.on = reference<cpu::native>()});
}

template std::vector<float> computed(const ir::graph&, ir::node_id, const compile_options&);
template std::vector<double> computed(const ir::graph&, ir::node_id, const compile_options&);

}  // namespace fmoe::test
