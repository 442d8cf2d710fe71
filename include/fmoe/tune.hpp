// SPDX-License-Identifier: MIT
#pragma once

#include <fmoe/planner/machine_text.hpp>
#include <fmoe/planner/tuned_shapes.hpp>
#include <fmoe/run/this_machine.hpp>

#include <fmoe/implementation.hpp>
