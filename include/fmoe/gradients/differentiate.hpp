// SPDX-License-Identifier: MIT
// Adds gradients to a graph. This header is a wall, as run/compile_graph.hpp is: here is the
// declaration, differentiate-inl.hpp has the rules.
#pragma once

#include <optional>

#include <fmoe/base/separate.hpp>
#include <fmoe/base/vector.hpp>
#include <fmoe/ir/graph.hpp>

namespace fmoe::detail {

// Returns the nodes of the gradients of sum(y dy), over all y, with respect to some nodes, with
// their shapes; nothing where the gradient is 0 everywhere. Throws shape_error unless each dy has
// the shape of its y, and value_error where a function has no derivative.
vector<std::optional<ir::node_id>> differentiate(ir::graph& g, const vector<ir::node_id>& y,
                                                 const vector<ir::node_id>& dy,
                                                 const vector<ir::node_id>& wanted);

// Returns the node of the gradient with respect to a part of y, with zeros where it is 0
// everywhere. A tensor of the same elements as one of y's stands for that. Throws value_error if y
// does not depend on it, and as differentiate does.
ir::node_id gradient_of_part(ir::graph& g, ir::node_id y, ir::node_id dy, ir::node_id part);

// True if a row of some results depends on other rows of the arguments.
bool rows_depend(const ir::graph& g, const ir::node_list& results);

}  // namespace fmoe::detail

#if !defined(FMOE_SEPARATE_COMPILATION)
#include <fmoe/gradients/differentiate-inl.hpp>
#endif
