// SPDX-License-Identifier: MIT
// Everything behind the walls of graphs and of the planner.
#pragma once

#include <fmoe/ir/graph-inl.hpp>
#include <fmoe/planner/machine_text-inl.hpp>
#include <fmoe/planner/planner-inl.hpp>
#include <fmoe/planner/tuned_shapes-inl.hpp>
