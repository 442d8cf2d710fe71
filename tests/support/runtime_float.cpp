// SPDX-License-Identifier: MIT
// The parts that precompiled.hpp leaves out of the tests, for float.
#include "precompiled.hpp"

#include <fmoe/run/cost-inl.hpp>
#include <fmoe/run/explain-inl.hpp>

namespace fmoe::detail {

template compiled_graph compile_graph<float, cpu::native>(const ir::graph&, const ir::node_list&,
                                                        extent, const compile_options&);
template explanation explain_graph<float, cpu::native>(const ir::graph&, ir::node_id, extent,
                                                     const compile_options&);
template cost_report cost_of_graph<cpu::native>(const ir::graph&, ir::node_id, extent);

}  // namespace fmoe::detail

template class fmoe::test::runner<float>;
