// SPDX-License-Identifier: MIT
// Everything behind the walls, instantiated for the instruction set of this translation unit.
#pragma once

#include <fmoe/backend/reference/reference-inl.hpp>
#include <fmoe/expr/expression-inl.hpp>
#include <fmoe/expr/lowered_graph-inl.hpp>
#include <fmoe/expr/operations-inl.hpp>
#include <fmoe/run/call_check-inl.hpp>
#include <fmoe/run/checked_executable-inl.hpp>
#include <fmoe/run/compile_graph-inl.hpp>
#include <fmoe/run/cost-inl.hpp>
#include <fmoe/run/evaluate-inl.hpp>
#include <fmoe/run/explain-inl.hpp>
#include <fmoe/run/read_axes-inl.hpp>

namespace fmoe::detail {

template compiled_graph compile_graph<float, cpu::native>(const ir::graph&, const ir::node_list&,
                                                          extent, const compile_options&,
                                                          const std::optional<in_place>&, calls);
template compiled_graph compile_graph<double, cpu::native>(const ir::graph&, const ir::node_list&,
                                                           extent, const compile_options&,
                                                           const std::optional<in_place>&, calls);
template explanation explain_graph<float, cpu::native>(const ir::graph&, const ir::node_list&,
                                                       extent, const compile_options&,
                                                       const std::optional<in_place>&);
template explanation explain_graph<double, cpu::native>(const ir::graph&, const ir::node_list&,
                                                        extent, const compile_options&,
                                                        const std::optional<in_place>&);
template cost_figures factorized_cost<float, cpu::native>(const ir::graph&, const ir::node_list&,
                                                          extent, const compile_options&);
template cost_figures factorized_cost<double, cpu::native>(const ir::graph&, const ir::node_list&,
                                                           extent, const compile_options&);
template cost_report cost_of_result<cpu::native>(const lowered_graph&, extent);
template std::vector<read_axis> read_axes<cpu::native>(const lowered_graph&);

}  // namespace fmoe::detail

template std::shared_ptr<const fmoe::backend> fmoe::reference<fmoe::cpu::native>();
